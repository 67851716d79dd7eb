"""Objects of a live owner move by its own hand only; requests are limited, redirected, reported, withdrawn."""

from __future__ import annotations

import asyncio

from kubeio.models import HasMeta
from kubeio.protocol import CONTROLLER_RINGS
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, Ground, belonging_to, eventually, places


async def test_a_join_asks_for_what_belongs_to_the_newcomer_and_nothing_else(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(40)
    owners = places("ab", [f"site-{n}" for n in range(40)])
    expected = {name for name, owner in owners.items() if owner == "b-00000001"}
    async with ground.sharder():
        await ground.until_balanced()
        await ground.shard("b")
        await eventually(ground.drains, dict.fromkeys(expected, "b-00000001"))
        assert set((await ground.owners()).values()) == {"a-00000001"}, "only the owner passes an object on"
        await ground.acknowledge_all()
        await ground.until_balanced()
        await eventually(
            lambda: ground.event_notes("Converged"),
            lambda notes: any(note.endswith("on the ring: a, b") for note in notes),
        )
    writes = [
        w for w in ground.plane.writes() if w.user == "sharder-1" and w.name in expected and w.code == 200
    ]
    assert len(writes) == 2 * len(expected), "one assignment and one request for each"


async def test_no_more_handoffs_are_in_flight_than_the_ring_allows(ground: Ground) -> None:
    await ground.ring(maxInFlight=5, maxInFlightPerOwner=3)
    a, c = await ground.shard("a"), await ground.shard("c")
    names = belonging_to("b", "abc", 16)
    await ground.sites_of(a, names[:8])
    await ground.sites_of(c, names[8:])
    await ground.shard("b")
    most = 0
    async with ground.sharder():
        for _ in range(60):
            labels = {n: found for n, found in (await ground.labels()).items() if KEYS.drain in found}
            owners = [found[KEYS.shard] for found in labels.values()]
            most = max(most, len(owners))
            assert len(owners) <= 5
            assert max((owners.count(name) for name in set(owners)), default=0) <= 3
            await ground.acknowledge_all()
            await asyncio.sleep(0.05)
        await ground.until_balanced()
    assert most >= 3, "the limit was never reached: the test proves nothing"
    assert set((await ground.owners()).values()) == {"b-00000001"}


async def test_a_handoff_past_its_timeout_is_reported_and_frees_its_budget(ground: Ground) -> None:
    await ground.ring(maxInFlight=2, drainTimeoutSeconds=1)
    stuck = await ground.shard("a")
    names = belonging_to("b", "ab", 4)
    await ground.sites_of(stuck, names)
    await ground.shard("b")
    async with ground.sharder():
        await eventually(ground.drains, lambda drains: set(drains) == set(names))
        await ground.until_condition("DrainStuck", status="True", says=stuck.name)
        await eventually(
            lambda: ground.event_notes("DrainTimeout"),
            lambda notes: any(stuck.name in note for note in notes),
        )
        await asyncio.sleep(0.5)
    assert await stuck.holder() == stuck.name, "policy Wait takes nothing by force"
    assert set((await ground.owners()).values()) == {stuck.name}


async def test_policy_force_takes_the_lease_contested_before_anything_moves(ground: Ground) -> None:
    await ground.ring(drainTimeoutSeconds=1, drainPolicy="Force", maxLeaseDurationSeconds=2)
    stuck = await ground.shard("a")
    names = belonging_to("b", "ab", 2)
    await ground.sites_of(stuck, names)
    await ground.shard("b")
    async with ground.sharder():
        await eventually(stuck.lease, lambda lease: KEYS.contested in lease.metadata.annotations)
        assert set((await ground.owners()).values()) == {stuck.name}
        await eventually(ground.owners, lambda owners: set(owners.values()) == {"b-00000001"})
        assert await ground.drains() == {}


async def test_a_request_in_flight_follows_the_ring(ground: Ground) -> None:
    """The target of a handoff dies before it arrives: the request points to where the object belongs now."""
    await ground.ring()
    a = await ground.shard("a")
    b = await ground.shard("b")
    name = belonging_to("b", "ab", 1)[0]
    await ground.site(name, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await eventually(ground.drains, {name: b.name})
        await b.release()
        await eventually(ground.drains, {name: a.name})
        assert (await ground.owners())[name] == a.name


async def test_a_paused_ring_moves_nothing_but_assigns_what_is_new(ground: Ground) -> None:
    await ground.ring(paused=True)
    a, _ = await ground.join("ab")
    strangers = belonging_to("b", "ab", 3)
    await ground.sites_of(a, strangers[:2])
    async with ground.sharder():
        await ground.site(strangers[2])
        await eventually(ground.owners, lambda owners: owners[strangers[2]] == "b-00000001")
        await asyncio.sleep(1.0)
        assert await ground.drains() == {}
        await ground.ring(paused=False)
        await eventually(ground.drains, lambda drains: set(drains) == set(strangers[:2]))


async def test_a_ring_that_is_worked_carries_a_finalizer(ground: Ground) -> None:
    await ground.ring()
    async with ground.sharder():
        await eventually(ground.status, lambda status: status.get("sharder") is not None)
        found = await ground.client.get(CONTROLLER_RINGS, RING, type=HasMeta)
        assert found.metadata.finalizers == ["ringleader.dev/ring"]


async def test_a_deleted_ring_gives_every_object_up_and_goes_when_no_lease_is_held(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    await ground.sites(5)
    async with ground.sharder():
        await ground.until_balanced()
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await eventually(ground.drains, lambda drains: list(drains.values()) == [""] * 5)
        await ground.acknowledge_all()
        await asyncio.sleep(4)
        assert await ground.exists(CONTROLLER_RINGS, RING), "a shard still holds its Lease"
        await a.release()
        await ground.until_ring_is_gone()
    assert set((await ground.owners()).values()) == {""}


async def test_objects_follow_the_selection_of_their_namespace(ground: Ground) -> None:
    await ground.namespace("in", {"ring": "yes"})
    await ground.namespace("out", {"ring": "no"})
    await ground.ring(namespaceSelector={"matchLabels": {"ring": "yes"}})
    await ground.shard("a")
    await ground.site("inside", namespace="in")
    await ground.site("outside", namespace="out")
    async with ground.sharder():
        await eventually(ground.owners, {"inside": "a-00000001", "outside": ""})
        await ground.until_balanced()
        await ground.label_namespace("out", {"ring": "yes"})
        await eventually(ground.owners, {"inside": "a-00000001", "outside": "a-00000001"})
        await ground.label_namespace("in", {"ring": "no"})
        await eventually(ground.drains, {"inside": ""})


async def test_shards_of_the_reference_implementation_are_asked_for_children_too(ground: Ground) -> None:
    """Without `protocol` a shard answers for each object by itself (protocol, 6.4)."""
    await ground.ring()
    a = await ground.shard("a", protocol="")
    name = belonging_to("b", "ab", 1)[0]
    site = await ground.site(name, labels={KEYS.shard: a.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    await ground.shard("b", protocol="")
    async with ground.sharder():
        await eventually(ground.drains, lambda drains: name in drains)
        await eventually(lambda: ground.drains(CONFIGMAPS), lambda drains: name in drains)
