"""A resource taken out of a ring is given up (protocol, section 7), and what was left behind is found (6.4, 9.18)."""

from __future__ import annotations

import asyncio

from devcluster.faults import Fault
from kubeio.models import Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, ApiResource
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    ONLY_SECRETS,
    RING,
    SECRETS,
    SITES,
    SITES_WITH_PAGES,
    WEBSITES,
    Ground,
    belonging_to,
    eventually,
    is_balanced,
    wait_until,
    worked,
)

BOTH = [SITES, *ONLY_SECRETS]


async def remove_sites(ground: Ground, count: int) -> None:
    """Take websites out of a ring of websites and secrets that has converged: all of them are asked for."""
    await ground.until_balanced()
    await ground.ring(resources=ONLY_SECRETS)
    await eventually(ground.drains, {f"site-{number}": "" for number in range(count)})


async def unlabelled(ground: Ground, resource: ApiResource = WEBSITES) -> bool:
    return not any(
        key in labels
        for labels in (await ground.labels(resource)).values()
        for key in (KEYS.shard, KEYS.drain)
    )


async def test_a_removed_resource_is_given_up_and_the_others_stay(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(3)
    await ground.make(SECRETS, "one")
    async with ground.sharder():
        await ground.until_balanced()
        assert await worked(ground) == ["secrets", "websites"]
        await ground.ring(resources=ONLY_SECRETS)
        await eventually(ground.drains, lambda drains: list(drains.values()) == [""] * 3)
        assert set((await ground.owners()).values()) == {"a-00000001"}, "only its owner gives an object up"
        await ground.until_condition("Releasing", says="3 objects still carry labels: websites.example.com")
        assert await worked(ground) == ["secrets", "websites"], "remembered until no label is left"
        await ground.acknowledge_all()
        await eventually(lambda: worked(ground), ["secrets"])
        await eventually(lambda: ground.condition("Releasing"), {})
        await ground.site("new")
        await ground.until_balanced()
        assert await unlabelled(ground)
        assert await ground.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_resource_that_was_removed_while_no_sharder_ran_is_given_up_too(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(2)
    async with ground.sharder():
        await ground.until_balanced()
    await ground.ring(resources=ONLY_SECRETS)
    async with ground.sharder("sharder-2"):
        await eventually(ground.drains, lambda drains: list(drains.values()) == [""] * 2)
    await ground.acknowledge("site-0")
    async with ground.sharder("sharder-3"):
        await asyncio.sleep(1.0)
        assert await worked(ground) == ["secrets", "websites"], "one object still has its labels"
        await ground.acknowledge_all()
        await eventually(lambda: worked(ground), ["secrets"])
    assert await unlabelled(ground)


async def test_labels_that_name_dead_shards_go_from_a_removed_resource(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    a = await ground.shard("a")
    await ground.sites(2)
    async with ground.sharder():
        await remove_sites(ground, 2)
        await a.release()
        await eventually(lambda: worked(ground), ["secrets"])
        assert await unlabelled(ground)


async def test_a_removed_controlled_resource_is_given_up_while_its_controllers_stay(ground: Ground) -> None:
    await ground.ring(resources=[SITES_WITH_PAGES])
    a = await ground.shard("a")
    site = await ground.site("one")
    await ground.page(site, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await ground.until_balanced()
        await ground.ring(resources=[SITES])
        await eventually(lambda: ground.drains(CONFIGMAPS), {"one": ""})
        await asyncio.sleep(1.5)
        assert await worked(ground) == ["configmaps", "websites"], "its label is still there"
        await ground.acknowledge("one", resource=CONFIGMAPS)
        await eventually(lambda: worked(ground), ["websites"])
        assert await unlabelled(ground, CONFIGMAPS)
        assert await ground.owners() == {"one": "a-00000001"}
        assert await ground.drains() == {}


async def test_a_removed_resource_is_remembered_while_an_object_waits_for_its_dead_owner(
    ground: Ground,
) -> None:
    """One that nobody controls any more, under a name without a Lease: contested first, then taken off."""
    await ground.ring(resources=[SITES_WITH_PAGES])
    await ground.shard("a")
    async with ground.sharder():
        await ground.until_balanced()
    await ground.ring(resources=[SITES])
    page = await ground.page(await ground.site("one"), labels={KEYS.shard: "gone-00000009"})
    await ground.patch(CONFIGMAPS, page.name, {"metadata": {"ownerReferences": None}})
    async with ground.sharder("sharder-2"):
        await eventually(lambda: worked(ground), ["websites"])
        assert await unlabelled(ground, CONFIGMAPS)


async def test_a_resource_that_is_listed_again_before_it_was_given_up_stays(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await remove_sites(ground, 1)
        await ground.ring(resources=BOTH)
        await eventually(ground.drains, {"site-0": "a-00000001"})


async def test_a_ring_that_is_deleted_amid_a_release_goes_when_both_are_given_up(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    a = await ground.shard("a")
    await ground.sites(2)
    await ground.make(SECRETS, "one")
    async with ground.sharder():
        await remove_sites(ground, 2)
    await ground.client.delete(CONTROLLER_RINGS, RING)
    async with ground.sharder("sharder-2"):
        await eventually(lambda: ground.drains(SECRETS), {"one": ""})
        await ground.acknowledge_all(SECRETS)
        await a.release()
        await ground.until_ring_is_gone()
    assert await unlabelled(ground)
    assert await unlabelled(ground, SECRETS)


async def test_a_removed_resource_whose_definition_is_deleted_holds_nothing_up(ground: Ground) -> None:
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await remove_sites(ground, 1)
        await ground.client.delete(CRDS, "websites.example.com")
        await eventually(lambda: worked(ground), ["secrets"])
        await ground.make(SECRETS, "one")
        await eventually(lambda: ground.owners(SECRETS), {"one": "a-00000001"})


async def test_a_removed_resource_whose_definition_went_while_no_sharder_ran_is_forgotten(
    ground: Ground,
) -> None:
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await remove_sites(ground, 1)
    await ground.client.delete(CRDS, "websites.example.com")
    async with ground.sharder("sharder-2"):
        await eventually(lambda: worked(ground), ["secrets"])


async def test_a_removed_resource_out_of_reach_is_logged_and_stops_no_other(ground: Ground) -> None:
    """Rights that went together with the resource: nothing can be given up, and nothing is forgotten."""
    await ground.ring(resources=BOTH)
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await ground.until_balanced()
        await ground.plane.faults.add(
            Fault(what="error", resource="websites.example.com", user="sharder-1", code=403)
        )
        await ground.ring(resources=ONLY_SECRETS)
        await ground.until_condition("Releasing", reason="Unseen")
        await ground.make(SECRETS, "one")
        await eventually(lambda: ground.owners(SECRETS), {"one": "a-00000001"})
        assert await worked(ground) == ["secrets", "websites"]


# ---- how far a release is -----------------------------------------------------------------------------------------


async def released(ground: Ground) -> object:
    return (await ground.status()).get("released")


async def told_released(ground: Ground, count: int, being: int) -> bool:
    message = f"{count} objects given up, {being} being given up"
    reported = (await ground.condition("Releasing")).get("message")
    return (reported, await released(ground)) == (message, count)


async def test_a_ring_that_is_deleted_shows_how_many_objects_were_given_up(ground: Ground) -> None:
    """Answered, deleted instead of answered, taken off a dead shard: each is one; what follows an object is none."""
    await ground.ring()
    a, b = await ground.join("ab")
    async with ground.sharder():
        await ground.until_balanced()
        assert await released(ground) is None
        await b.release()
        await wait_until(b.holder)
    for number in range(4):
        site = await ground.site(f"site-{number}", labels={KEYS.shard: a.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    await ground.site("stray", labels={KEYS.shard: b.name})
    await ground.client.delete(CONTROLLER_RINGS, RING)
    async with ground.sharder("sharder-2"):
        await wait_until(lambda: told_released(ground, 1, 4))
        assert (await ground.condition("Ready"))["reason"] == "Releasing"
        assert (await ground.condition("Balanced"))["reason"] == "Releasing"
        await ground.acknowledge("site-0")
        await ground.client.delete(WEBSITES, "site-1", namespace="default")
        await wait_until(lambda: told_released(ground, 3, 2))
        assert (await ground.status())["unassigned"] == 0
    async with ground.sharder("sharder-3"):
        await wait_until(lambda: told_released(ground, 0, 2))
        await ground.acknowledge_all()
        await wait_until(lambda: told_released(ground, 2, 1))  # the page was left behind
        await ground.acknowledge_all(CONFIGMAPS)
        await wait_until(lambda: told_released(ground, 2, 0))


# ---- left behind --------------------------------------------------------------------------------------------------


async def left_behind(ground: Ground) -> Meta:
    """A site that is at its place with b, and a page of it that a still has."""
    await ground.ring()
    a, b = await ground.join("ab")
    name = belonging_to("b", "ab", 1)[0]
    site = await ground.site(name, labels={KEYS.shard: b.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    return site


async def test_a_controlled_object_left_behind_is_sent_after_its_controller(ground: Ground) -> None:
    site = await left_behind(ground)
    async with ground.sharder():
        await eventually(lambda: ground.drains(CONFIGMAPS), {site.name: "b-00000001"})
        assert not await is_balanced(ground)
        await ground.acknowledge(site.name, resource=CONFIGMAPS)
        await ground.until_balanced()
    assert await ground.owners(CONFIGMAPS) == {site.name: "b-00000001"}


async def test_controlled_objects_whose_controller_is_on_its_way_are_left_to_its_owner(
    ground: Ground,
) -> None:
    await ground.ring()
    a = await ground.shard("a")
    names = belonging_to("b", "ab", 5)
    for name in names:
        await ground.page(await ground.site(name, labels={KEYS.shard: a.name}), labels={KEYS.shard: a.name})
    async with ground.sharder():
        await ground.until_balanced()
        await ground.shard("b")
        await eventually(ground.drains, lambda drains: set(drains) == set(names))
        await asyncio.sleep(3.0)
        assert await ground.drains(CONFIGMAPS) == {}


async def test_a_controlled_object_left_behind_does_not_keep_a_deleted_ring(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    site = await ground.site("one")
    await ground.page(site, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await ground.until_balanced()
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await eventually(ground.drains, {"one": ""})
        assert await ground.drains(CONFIGMAPS) == {}, "its owner gives it up with its controller"
        await ground.acknowledge("one")
        await eventually(lambda: ground.drains(CONFIGMAPS), {"one": ""})
        await ground.acknowledge("one", resource=CONFIGMAPS)
        await a.release()
        await ground.until_ring_is_gone()


async def test_a_controlled_object_that_lost_its_controller_reference_is_given_up(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    page = await ground.page(await ground.site("one"), labels={KEYS.shard: a.name})
    await ground.patch(CONFIGMAPS, page.name, {"metadata": {"ownerReferences": None}})
    async with ground.sharder():
        await eventually(lambda: ground.drains(CONFIGMAPS), {"one": ""})
