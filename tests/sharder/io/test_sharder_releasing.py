"""A resource taken out of a ring is given up (protocol, section 7), and what was left behind is found (6.4, 9.18)."""

from __future__ import annotations

import asyncio

from devcluster.faults import Fault
from kubeio.models import Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, ApiResource
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    ONLY_SECRETS,
    RING,
    SECRETS,
    SITES,
    SITES_WITH_PAGES,
    WEBSITES,
    SharderEnvironment,
    belonging_to,
    eventually,
    is_balanced,
    wait_until,
    worked,
)

BOTH = [SITES, *ONLY_SECRETS]


async def remove_sites(env: SharderEnvironment, count: int) -> None:
    """Take websites out of a ring of websites and secrets that has converged: all of them are asked for."""
    await env.until_balanced()
    await env.ring(resources=ONLY_SECRETS)
    await eventually(env.drains, {f"site-{number}": "" for number in range(count)})


async def unlabelled(env: SharderEnvironment, resource: ApiResource = WEBSITES) -> bool:
    return not any(
        key in labels for labels in (await env.labels(resource)).values() for key in (KEYS.shard, KEYS.drain)
    )


async def test_a_removed_resource_is_given_up_and_the_others_stay(env: SharderEnvironment) -> None:
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(3)
    await env.make(SECRETS, "one")
    async with env.sharder():
        await env.until_balanced()
        assert await worked(env) == ["secrets", "websites"]
        await env.ring(resources=ONLY_SECRETS)
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 3)
        assert set((await env.owners()).values()) == {"a-00000001"}, "only its owner gives an object up"
        await env.until_condition("Releasing", says="3 objects still carry labels: websites.example.com")
        assert await worked(env) == ["secrets", "websites"], "remembered until no label is left"
        await env.acknowledge_all()
        await eventually(lambda: worked(env), ["secrets"])
        await eventually(lambda: env.condition("Releasing"), {})
        await env.site("new")
        await env.until_balanced()
        assert await unlabelled(env)
        assert await env.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_resource_that_was_removed_while_no_sharder_ran_is_given_up_too(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(2)
    async with env.sharder():
        await env.until_balanced()
    await env.ring(resources=ONLY_SECRETS)
    async with env.sharder("sharder-2"):
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 2)
    await env.acknowledge("site-0")
    async with env.sharder("sharder-3"):
        await asyncio.sleep(1.0)
        assert await worked(env) == ["secrets", "websites"], "one object still has its labels"
        await env.acknowledge_all()
        await eventually(lambda: worked(env), ["secrets"])
    assert await unlabelled(env)


async def test_labels_that_name_dead_shards_go_from_a_removed_resource(env: SharderEnvironment) -> None:
    await env.ring(resources=BOTH)
    a = await env.shard("a")
    await env.sites(2)
    async with env.sharder():
        await remove_sites(env, 2)
        await a.release()
        await eventually(lambda: worked(env), ["secrets"])
        assert await unlabelled(env)


async def test_a_removed_controlled_resource_is_given_up_while_its_controllers_stay(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=[SITES_WITH_PAGES])
    a = await env.shard("a")
    site = await env.site("one")
    await env.page(site, labels={KEYS.shard: a.name})
    async with env.sharder():
        await env.until_balanced()
        await env.ring(resources=[SITES])
        await eventually(lambda: env.drains(CONFIGMAPS), {"one": ""})
        await asyncio.sleep(1.5)
        assert await worked(env) == ["configmaps", "websites"], "its label is still there"
        await env.acknowledge("one", resource=CONFIGMAPS)
        await eventually(lambda: worked(env), ["websites"])
        assert await unlabelled(env, CONFIGMAPS)
        assert await env.owners() == {"one": "a-00000001"}
        assert await env.drains() == {}


async def test_a_removed_resource_is_remembered_while_an_object_waits_for_its_dead_owner(
    env: SharderEnvironment,
) -> None:
    """One that nobody controls any more, under a name without a Lease: contested first, then taken off."""
    await env.ring(resources=[SITES_WITH_PAGES])
    await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
    await env.ring(resources=[SITES])
    page = await env.page(await env.site("one"), labels={KEYS.shard: "gone-00000009"})
    await env.patch(CONFIGMAPS, page.name, {"metadata": {"ownerReferences": None}})
    async with env.sharder("sharder-2"):
        await eventually(lambda: worked(env), ["websites"])
        assert await unlabelled(env, CONFIGMAPS)


async def test_a_resource_that_is_listed_again_before_it_was_given_up_stays(env: SharderEnvironment) -> None:
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(1)
    async with env.sharder():
        await remove_sites(env, 1)
        await env.ring(resources=BOTH)
        await eventually(env.drains, {"site-0": "a-00000001"})


async def test_a_ring_that_is_deleted_amid_a_release_goes_when_both_are_given_up(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=BOTH)
    a = await env.shard("a")
    await env.sites(2)
    await env.make(SECRETS, "one")
    async with env.sharder():
        await remove_sites(env, 2)
    await env.client.delete(CONTROLLER_RINGS, RING)
    async with env.sharder("sharder-2"):
        await eventually(lambda: env.drains(SECRETS), {"one": ""})
        await env.acknowledge_all(SECRETS)
        await a.release()
        await env.until_ring_is_gone()
    assert await unlabelled(env)
    assert await unlabelled(env, SECRETS)


async def test_a_removed_resource_whose_definition_is_deleted_holds_nothing_up(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(1)
    async with env.sharder():
        await remove_sites(env, 1)
        await env.client.delete(CRDS, "websites.example.com")
        await eventually(lambda: worked(env), ["secrets"])
        await env.make(SECRETS, "one")
        await eventually(lambda: env.owners(SECRETS), {"one": "a-00000001"})


async def test_a_removed_resource_whose_definition_went_while_no_sharder_ran_is_forgotten(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(1)
    async with env.sharder():
        await remove_sites(env, 1)
    await env.client.delete(CRDS, "websites.example.com")
    async with env.sharder("sharder-2"):
        await eventually(lambda: worked(env), ["secrets"])


async def test_a_removed_resource_out_of_reach_is_logged_and_stops_no_other(env: SharderEnvironment) -> None:
    """Rights that went together with the resource: nothing can be given up, and nothing is forgotten."""
    await env.ring(resources=BOTH)
    await env.shard("a")
    await env.sites(1)
    async with env.sharder():
        await env.until_balanced()
        await env.plane.faults.add(
            Fault(what="error", resource="websites.example.com", user="sharder-1", code=403)
        )
        await env.ring(resources=ONLY_SECRETS)
        await env.until_condition("Releasing", reason="Unseen")
        await env.make(SECRETS, "one")
        await eventually(lambda: env.owners(SECRETS), {"one": "a-00000001"})
        assert await worked(env) == ["secrets", "websites"]


# ---- how far a release is -----------------------------------------------------------------------------------------


async def released(env: SharderEnvironment) -> object:
    return (await env.status()).get("released")


async def told_released(env: SharderEnvironment, count: int, being: int) -> bool:
    message = f"{count} objects given up, {being} being given up"
    reported = (await env.condition("Releasing")).get("message")
    return (reported, await released(env)) == (message, count)


async def test_a_ring_that_is_deleted_shows_how_many_objects_were_given_up(env: SharderEnvironment) -> None:
    """Answered, deleted instead of answered, taken off a dead shard: each is one; what follows an object is none."""
    await env.ring()
    a, b = await env.join("ab")
    async with env.sharder():
        await env.until_balanced()
        assert await released(env) is None
        await b.release()
        await wait_until(b.holder)
    for number in range(4):
        site = await env.site(f"site-{number}", labels={KEYS.shard: a.name})
    await env.page(site, labels={KEYS.shard: a.name})
    await env.site("stray", labels={KEYS.shard: b.name})
    await env.client.delete(CONTROLLER_RINGS, RING)
    async with env.sharder("sharder-2"):
        await wait_until(lambda: told_released(env, 1, 4))
        assert (await env.condition("Ready"))["reason"] == "Releasing"
        assert (await env.condition("Balanced"))["reason"] == "Releasing"
        await env.acknowledge("site-0")
        await env.client.delete(WEBSITES, "site-1", namespace="default")
        await wait_until(lambda: told_released(env, 3, 2))
        assert (await env.status())["unassigned"] == 0
    async with env.sharder("sharder-3"):
        await wait_until(lambda: told_released(env, 0, 2))
        await env.acknowledge_all()
        await wait_until(lambda: told_released(env, 2, 1))  # the page was left behind
        await env.acknowledge_all(CONFIGMAPS)
        await wait_until(lambda: told_released(env, 2, 0))


# ---- left behind --------------------------------------------------------------------------------------------------


async def left_behind(env: SharderEnvironment) -> Meta:
    """A site that is at its place with b, and a page of it that a still has."""
    await env.ring()
    a, b = await env.join("ab")
    name = belonging_to("b", "ab", 1)[0]
    site = await env.site(name, labels={KEYS.shard: b.name})
    await env.page(site, labels={KEYS.shard: a.name})
    return site


async def test_a_controlled_object_left_behind_is_sent_after_its_controller(env: SharderEnvironment) -> None:
    site = await left_behind(env)
    async with env.sharder():
        await eventually(lambda: env.drains(CONFIGMAPS), {site.name: "b-00000001"})
        assert not await is_balanced(env)
        await env.acknowledge(site.name, resource=CONFIGMAPS)
        await env.until_balanced()
    assert await env.owners(CONFIGMAPS) == {site.name: "b-00000001"}


async def test_controlled_objects_whose_controller_is_on_its_way_are_left_to_its_owner(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    a = await env.shard("a")
    names = belonging_to("b", "ab", 5)
    for name in names:
        await env.page(await env.site(name, labels={KEYS.shard: a.name}), labels={KEYS.shard: a.name})
    async with env.sharder():
        await env.until_balanced()
        await env.shard("b")
        await eventually(env.drains, lambda drains: set(drains) == set(names))
        await asyncio.sleep(3.0)
        assert await env.drains(CONFIGMAPS) == {}


async def test_a_controlled_object_left_behind_does_not_keep_a_deleted_ring(env: SharderEnvironment) -> None:
    await env.ring()
    a = await env.shard("a")
    site = await env.site("one")
    await env.page(site, labels={KEYS.shard: a.name})
    async with env.sharder():
        await env.until_balanced()
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, {"one": ""})
        assert await env.drains(CONFIGMAPS) == {}, "its owner gives it up with its controller"
        await env.acknowledge("one")
        await eventually(lambda: env.drains(CONFIGMAPS), {"one": ""})
        await env.acknowledge("one", resource=CONFIGMAPS)
        await a.release()
        await env.until_ring_is_gone()


async def test_a_controlled_object_that_lost_its_controller_reference_is_given_up(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    a = await env.shard("a")
    page = await env.page(await env.site("one"), labels={KEYS.shard: a.name})
    await env.patch(CONFIGMAPS, page.name, {"metadata": {"ownerReferences": None}})
    async with env.sharder():
        await eventually(lambda: env.drains(CONFIGMAPS), {"one": ""})
