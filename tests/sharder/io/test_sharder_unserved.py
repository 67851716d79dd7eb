"""A resource of a ring that is not served (its definition was deleted): the others go on, and it comes back."""

from __future__ import annotations

from kubeio.resource import CRDS
from tests.sharder.io.environment import ONLY_SECRETS, SECRETS, SITES, SharderEnvironment, eventually


async def until_told(env: SharderEnvironment) -> None:
    """Until the condition names the resource, and both ways out."""
    for words in (
        "'websites.example.com' is not served: ",
        "install its CRD first",
        ", or take it out of spec.resources",
    ):
        await env.until_condition("Ready", reason="ResourceFails", says=words)


async def test_a_resource_that_is_not_served_stops_no_other_and_is_worked_once_it_is(
    env: SharderEnvironment,
) -> None:
    await env.client.delete(CRDS, "websites.example.com")
    await env.ring(resources=[SITES, *ONLY_SECRETS])
    await env.shard("a")
    await env.make(SECRETS, "one")
    async with env.sharder():
        await eventually(lambda: env.owners(SECRETS), {"one": "a-00000001"})
        await until_told(env)
        await env.define("examples/website/crd.yaml")
        await env.until_condition("Ready", status="True", reason="Working", within_s=25)
        await env.sites(1)
        await eventually(env.owners, lambda owners: all(owners.values()))
        assert await env.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_definition_that_is_deleted_stops_no_take_over_of_what_is_served(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=[SITES, *ONLY_SECRETS])
    first = await env.shard("a")
    await env.sites(1)
    await env.make(SECRETS, "one")
    async with env.sharder():
        await env.until_balanced()
        await env.client.delete(CRDS, "websites.example.com")
        await env.shard("b")
        await first.fall_silent()
        await eventually(lambda: env.owners(SECRETS), {"one": "b-00000001"}, within_s=25)
        await until_told(env)


async def test_a_ring_none_of_whose_main_resources_is_served_is_refused_until_one_is(
    env: SharderEnvironment,
) -> None:
    await env.client.delete(CRDS, "websites.example.com")
    await env.ring(resources=[SITES])
    async with env.sharder():
        await env.until_condition("Ready", status="False", reason="InputError")
        assert "websites.example.com" in str((await env.condition("Ready"))["message"])
        await env.shard("a")
        await env.define("examples/website/crd.yaml")
        await env.until_condition("Ready", status="True", reason="Working", within_s=15)
