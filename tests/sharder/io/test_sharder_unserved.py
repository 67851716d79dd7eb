"""A resource of a ring that is not served (its definition was deleted): the others go on, and it comes back."""

from __future__ import annotations

from kubeio.resource import CRDS
from tests.sharder.io.ground import Ground, wait_until
from tests.sharder.io.test_sharder_releasing import ONLY_SECRETS, SECRETS, SITES, balanced, secret


async def ready(ground: Ground) -> tuple[object, object]:
    found = await ground.condition("Ready")
    return found.get("status"), found.get("reason")


async def owns_secret(ground: Ground, name: str) -> bool:
    return bool((await ground.owners(SECRETS)).get(name))


def is_told(message: str) -> bool:
    """Whether *message* names the resource, and both ways out."""
    named = message.startswith("'websites.example.com' is not served: ")
    return (
        named
        and "install its CRD first" in message
        and message.endswith(", or take it out of spec.resources")
    )


async def fails(ground: Ground) -> str:
    """What the condition says of a resource that fails; empty if it says nothing."""
    found = await ground.condition("Ready")
    return str(found["message"]) if found.get("reason") == "ResourceFails" else ""


async def test_a_resource_that_is_not_served_stops_no_other_and_is_worked_once_it_is(ground: Ground) -> None:
    await ground.client.delete(CRDS, "websites.example.com")
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await secret(ground, "one")
    async with ground.sharder():
        await wait_until(lambda: owns_secret(ground, "one"))

        async def told() -> bool:
            return is_told(await fails(ground))

        await wait_until(told)
        await ground.define("examples/website/crd.yaml")

        async def works() -> bool:
            return await ready(ground) == ("True", "Working")

        await wait_until(works, within_s=25)
        await ground.sites(1)

        async def is_owned() -> bool:
            return all((await ground.owners()).values())

        await wait_until(is_owned)
        assert await ground.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_definition_that_is_deleted_stops_no_take_over_of_what_is_served(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    first = await ground.shard("a")
    await ground.sites(1)
    await secret(ground, "one")
    async with ground.sharder():
        await balanced(ground)
        await ground.client.delete(CRDS, "websites.example.com")
        await ground.shard("b")
        await first.fall_silent()

        async def taken_over() -> bool:
            return await ground.owners(SECRETS) == {"one": "b-00000001"}

        await wait_until(taken_over, within_s=25)

        async def told() -> bool:
            return is_told(await fails(ground))

        await wait_until(told)


async def test_a_ring_none_of_whose_main_resources_is_served_is_refused_until_one_is(ground: Ground) -> None:
    await ground.client.delete(CRDS, "websites.example.com")
    await ground.ring(resources=[SITES])
    async with ground.sharder():

        async def refused() -> bool:
            return await ready(ground) == ("False", "InputError")

        await wait_until(refused)
        assert "websites.example.com" in str((await ground.condition("Ready"))["message"])
        await ground.shard("a")
        await ground.define("examples/website/crd.yaml")

        async def works() -> bool:
            return await ready(ground) == ("True", "Working")

        await wait_until(works, within_s=15)
