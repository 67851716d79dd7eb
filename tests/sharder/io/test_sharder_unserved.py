"""A resource of a ring that is not served (its definition was deleted): the others go on, and it comes back."""

from __future__ import annotations

from kubeio.resource import CRDS
from tests.sharder.io.ground import ONLY_SECRETS, SECRETS, SITES, Ground, eventually


async def until_told(ground: Ground) -> None:
    """Until the condition names the resource, and both ways out."""
    for words in (
        "'websites.example.com' is not served: ",
        "install its CRD first",
        ", or take it out of spec.resources",
    ):
        await ground.until_condition("Ready", reason="ResourceFails", says=words)


async def test_a_resource_that_is_not_served_stops_no_other_and_is_worked_once_it_is(ground: Ground) -> None:
    await ground.client.delete(CRDS, "websites.example.com")
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.make(SECRETS, "one")
    async with ground.sharder():
        await eventually(lambda: ground.owners(SECRETS), {"one": "a-00000001"})
        await until_told(ground)
        await ground.define("examples/website/crd.yaml")
        await ground.until_condition("Ready", status="True", reason="Working", within_s=25)
        await ground.sites(1)
        await eventually(ground.owners, lambda owners: all(owners.values()))
        assert await ground.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_definition_that_is_deleted_stops_no_take_over_of_what_is_served(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    first = await ground.shard("a")
    await ground.sites(1)
    await ground.make(SECRETS, "one")
    async with ground.sharder():
        await ground.until_balanced()
        await ground.client.delete(CRDS, "websites.example.com")
        await ground.shard("b")
        await first.fall_silent()
        await eventually(lambda: ground.owners(SECRETS), {"one": "b-00000001"}, within_s=25)
        await until_told(ground)


async def test_a_ring_none_of_whose_main_resources_is_served_is_refused_until_one_is(ground: Ground) -> None:
    await ground.client.delete(CRDS, "websites.example.com")
    await ground.ring(resources=[SITES])
    async with ground.sharder():
        await ground.until_condition("Ready", status="False", reason="InputError")
        assert "websites.example.com" in str((await ground.condition("Ready"))["message"])
        await ground.shard("a")
        await ground.define("examples/website/crd.yaml")
        await ground.until_condition("Ready", status="True", reason="Working", within_s=15)
