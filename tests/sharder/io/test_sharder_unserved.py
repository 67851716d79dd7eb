"""A resource of a ring that is not served (its definition was deleted): the others go on, and it comes back."""

from __future__ import annotations

from typing import Any

from devcluster.faults import Fault
from kubeio.patch import MergePatch
from kubeio.resource import CRDS
from tests.sharder.io.environment import ONLY_SECRETS, SECRETS, SITES, SharderEnvironment, eventually

NAME = "websites.example.com"


async def serve(env: SharderEnvironment, **versions: bool) -> None:
    """Define *versions* of the Website, which are served or not; v1 is stored. Its watches end, as on a real server."""
    found = await env.client.get(CRDS, NAME, type=dict[str, Any])
    stored = next(each for each in found["spec"]["versions"] if each["storage"])
    defined = [
        {**stored, "name": name, "served": is_served, "storage": name == "v1"}
        for name, is_served in versions.items()
    ]
    await env.client.patch(CRDS, NAME, MergePatch({"spec": {"versions": defined}}), type=bytes)
    await env.plane.faults.add(Fault(what="expire_watches", resource=NAME, for_s=0.1))


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
    await env.client.delete(CRDS, NAME)
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
        await env.client.delete(CRDS, NAME)
        await env.shard("b")
        await first.fall_silent()
        await eventually(lambda: env.owners(SECRETS), {"one": "b-00000001"}, within_s=25)
        await until_told(env)


async def test_a_ring_none_of_whose_main_resources_is_served_is_refused_until_one_is(
    env: SharderEnvironment,
) -> None:
    await env.client.delete(CRDS, NAME)
    await env.ring(resources=[SITES])
    async with env.sharder():
        await env.until_condition("Ready", status="False", reason="InputError")
        assert "websites.example.com" in str((await env.condition("Ready"))["message"])
        await env.shard("a")
        await env.define("examples/website/crd.yaml")
        await env.until_condition("Ready", status="True", reason="Working", within_s=15)


async def test_a_ring_goes_on_in_another_version_when_its_own_is_no_longer_served(
    env: SharderEnvironment,
) -> None:
    """The ring is at rest: no pass shows it."""
    await serve(env, v1=False, v1beta1=True)
    await env.ring(resources=[SITES])
    await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
        await serve(env, v1=True, v1beta1=True)
        await serve(env, v1=True, v1beta1=False)
        await env.sites(1)
        await eventually(env.owners, {"site-0": "a-00000001"})
