"""Rings that are looked at again and again: what the watches make of them is what a list of everything shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from devcluster.faults import Fault
from kubeio.errors import InputError, KubeError
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.discovery import Discovery
from ring import HashRing
from ringleader.cluster.following import Following
from ringleader.cluster.picture import ObjectCount, RingPicture, picture
from ringleader.cluster.ring import named_ring
from ringleader.cluster.shards import ring_weights
from ringleader.cluster.snapshot import read_rings, read_shards
from tests.sharder.io.ground import KEYS, RING, WEBSITES, Ground, is_balanced, wait_until


@pytest.fixture
async def following(ground: Ground) -> AsyncIterator[Following]:
    async with Following(ground.client, Discovery(ground.client), None, timeout_s=5) as following:
        yield following


async def listed(ground: Ground, *, unselected: str = "") -> RingPicture:
    """The picture that a list of every object gives; what is in *unselected* counts only with an owner."""
    ring = named_ring(await read_rings(ground.client, timeout_s=5), RING)
    shards = await read_shards(ground.client, ring)
    active = {shard.member: shard.name for shard in shards if shard.is_active}
    hashed = HashRing(ring_weights(ring, shards), virtual_nodes=ring.spec.virtual_nodes, eps=ring.spec.eps)
    count = ObjectCount()
    async for page in ground.client.pages(WEBSITES, metadata_only=True):
        for meta in (item.meta for item in page.objects):
            owner = meta.labels.get(KEYS.shard, "")
            if not owner and meta.namespace == unselected:
                continue
            member = hashed.owner(f"example.com_{meta.namespace}_{meta.name}") if len(hashed) else ""
            is_leaving = KEYS.drain in meta.labels
            count.add(owner, is_leaving=is_leaving, desired=active.get(member, ""))
    return picture(ring, shards, count)


def counted(shown: RingPicture) -> object:
    """What of a picture was counted."""
    lives = {each.shard: (each.objects, each.in_flight, each.share) for each in shown.members}
    return shown.objects, shown.unowned, shown.in_flight, shown.misplaced, lives


async def label(ground: Ground, name: str, **labels: str | None) -> None:
    change = {getattr(KEYS, key): value for key, value in labels.items()}
    patch = MergePatch({"metadata": {"labels": change}})
    await ground.client.patch(WEBSITES, name, patch, namespace="default", type=bytes)


async def looked_until(following: Following, holds: Callable[[RingPicture], bool]) -> RingPicture:
    async def look() -> bool:
        (last,) = await following.look()
        shown.append(last)
        return holds(last)

    shown: list[RingPicture] = []
    await wait_until(look)
    return shown[-1]


async def test_each_picture_is_the_one_that_a_list_would_give(ground: Ground, following: Following) -> None:
    await ground.ring()
    a, b = await ground.shard("a"), await ground.shard("b")
    await ground.sites(6, labels={KEYS.shard: a.name})
    await ground.site("free")
    await ground.site("lost", labels={KEYS.shard: "nobody-00000001"})
    (first,) = await following.look()
    assert (first.objects, first.unowned) == (8, 2)
    assert counted(first) == counted(await listed(ground))
    await label(ground, "site-0", drain=b.name)
    await label(ground, "site-1", shard=b.name)
    await label(ground, "free", shard=b.name)
    await ground.client.delete(WEBSITES, "lost", namespace="default")
    await ground.site("more", labels={KEYS.shard: b.name})
    last = await looked_until(following, lambda shown: shown.in_flight == 1 and shown.objects == 8)
    await wait_until(lambda: agree(ground, following))
    assert {each.member: each.objects for each in last.members} == {"a": 5, "b": 3}


async def agree(ground: Ground, following: Following) -> bool:
    (shown,) = await following.look()
    return counted(shown) == counted(await listed(ground))


async def test_it_agrees_with_a_list_when_members_come_and_go(ground: Ground, following: Following) -> None:
    await ground.ring()
    a = await ground.shard("a")
    await ground.sites(40, labels={KEYS.shard: a.name})
    (first,) = await following.look()
    assert (first.to_do, first.misplaced) == (0, 0)
    going = await ground.shard("b")
    joined = await looked_until(following, lambda shown: shown.misplaced > 5)
    assert counted(joined) == counted(await listed(ground))
    await ground.ring(members={"b": {"cordoned": True}})
    await looked_until(following, lambda shown: shown.misplaced == 0)
    await going.fall_silent()
    await ground.leases.delete(await going.lease())
    (left,) = await following.look()
    assert counted(left) == counted(await listed(ground))


async def test_namespaces_that_a_ring_does_not_select_are_not_counted(
    ground: Ground, following: Following
) -> None:
    await ground.ring(namespaceSelector={"matchLabels": {"tier": "web"}})
    a = await ground.shard("a")
    await ground.namespace("shop", {"tier": "web"})
    await ground.namespace("attic", {"tier": "old"})
    await ground.site("one", namespace="shop")
    await ground.site("two", namespace="attic")
    await ground.site("three", namespace="attic", labels={KEYS.shard: a.name})
    (shown,) = await following.look()
    assert (shown.objects, shown.unowned) == (2, 1)
    assert counted(shown) == counted(await listed(ground, unselected="attic"))
    await ground.label_namespace("attic", {"tier": "web"})
    await looked_until(following, lambda shown: shown.objects == 3)


async def test_a_rebalance_of_a_real_sharder_is_followed_to_its_end(
    ground: Ground, following: Following
) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(20)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await following.look()
        await ground.shard("b")
        passing = asyncio.create_task(pass_on(ground), name="pass on")
        await looked_until(following, lambda shown: shown.misplaced > 0)
        last = await looked_until(following, lambda shown: not shown.to_do and not shown.in_flight)
        passing.cancel()
    (share,) = [each.objects for each in last.members if each.member == "b"]
    assert share > 0


async def pass_on(ground: Ground) -> None:
    """Be the owners: pass on what is to be passed on."""
    while True:
        for name in await ground.drains():
            await ground.acknowledge(name)
        await asyncio.sleep(0.05)


async def test_objects_are_listed_once_and_an_outage_is_told_and_healed(
    ground: Ground, following: Following
) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    await following.look()
    fault = Fault(what="error", code=500, verb="list", resource="websites.example.com")
    await ground.plane.faults.add(fault)
    await ground.site("later")
    await looked_until(following, lambda shown: shown.objects == 4)
    await ground.plane.faults.clear()
    for fault in (
        Fault(what="cut", verb="watch", resource="websites.example.com"),
        Fault(what="error", code=503, verb="watch", resource="websites.example.com"),
    ):
        await ground.plane.faults.add(fault)
    await wait_until(lambda: is_told(following))
    await ground.plane.faults.clear()
    await ground.site("last")
    await wait_until(lambda: sees(following, 5), within_s=20)


async def is_told(following: Following) -> bool:
    try:
        await following.look()
    except KubeError:
        return True
    return False


async def sees(following: Following, objects: int) -> bool:
    try:
        (shown,) = await following.look()
    except KubeError:
        return False
    return shown.objects == objects


async def test_a_right_that_is_missing_is_told_by_the_first_look(
    ground: Ground, following: Following
) -> None:
    await ground.ring()
    for verb in ("list", "watch"):
        fault = Fault(what="error", code=403, verb=verb, resource="websites.example.com")
        await ground.plane.faults.add(fault)
    with pytest.raises(KubeError):
        await following.look()


async def test_what_a_ring_distributes_may_change(ground: Ground, following: Following) -> None:
    await ground.ring()
    await ground.sites(2)
    (shown,) = await following.look()
    assert shown.objects == 2
    change = {"spec": {"resources": [{"group": "", "resource": "configmaps"}]}}
    await ground.client.patch(CONTROLLER_RINGS, RING, MergePatch(change), type=bytes)
    page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "only"}}
    resource = await Discovery(ground.client).resolve("configmaps")
    await ground.client.create(resource, page, namespace="default", type=bytes)
    await looked_until(following, lambda shown: shown.objects == 1)


async def test_a_ring_that_is_gone_is_not_shown_and_one_that_was_named_is_missed(ground: Ground) -> None:
    await ground.ring()
    discovery = Discovery(ground.client)
    async with (
        Following(ground.client, discovery, None, timeout_s=5) as every,
        Following(ground.client, discovery, RING, timeout_s=5) as one,
    ):
        assert [shown.name for shown in [*await every.look(), *await one.look()]] == [RING, RING]
        await ground.client.delete(CONTROLLER_RINGS, RING)
        assert await every.look() == []
        assert every.watches.objects == 0
        with pytest.raises(InputError, match="not a ring of this cluster"):
            await one.look()
