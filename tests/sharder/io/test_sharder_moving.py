"""Objects of a live owner move by its own hand only; requests are limited, redirected, reported, withdrawn."""

from __future__ import annotations

import asyncio

from kubeio.models import HasMeta
from kubeio.protocol import CONTROLLER_RINGS
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    SharderEnvironment,
    belonging_to,
    eventually,
    places,
)


async def test_a_join_asks_for_what_belongs_to_the_newcomer_and_nothing_else(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(40)
    owners = places("ab", [f"site-{n}" for n in range(40)])
    expected = {name for name, owner in owners.items() if owner == "b-00000001"}
    async with env.sharder():
        await env.until_balanced()
        await env.shard("b")
        await eventually(env.drains, dict.fromkeys(expected, "b-00000001"))
        assert set((await env.owners()).values()) == {"a-00000001"}, "only the owner passes an object on"
        await env.acknowledge_all()
        await env.until_balanced()
        await eventually(
            lambda: env.event_notes("Converged"),
            lambda notes: any(note.endswith("on the ring: a, b") for note in notes),
        )
    writes = [w for w in env.plane.writes() if w.user == "sharder-1" and w.name in expected and w.code == 200]
    assert len(writes) == 2 * len(expected), "one assignment and one request for each"


async def test_no_more_handoffs_are_in_flight_than_the_ring_allows(env: SharderEnvironment) -> None:
    await env.ring(maxInFlight=5, maxInFlightPerOwner=3)
    a, c = await env.shard("a"), await env.shard("c")
    names = belonging_to("b", "abc", 16)
    await env.sites_of(a, names[:8])
    await env.sites_of(c, names[8:])
    await env.shard("b")
    most = 0
    async with env.sharder():
        for _ in range(60):
            labels = {n: found for n, found in (await env.labels()).items() if KEYS.drain in found}
            owners = [found[KEYS.shard] for found in labels.values()]
            most = max(most, len(owners))
            assert len(owners) <= 5
            assert max((owners.count(name) for name in set(owners)), default=0) <= 3
            await env.acknowledge_all()
            await asyncio.sleep(0.05)
        await env.until_balanced()
    assert most >= 3, "the limit was never reached: the test proves nothing"
    assert set((await env.owners()).values()) == {"b-00000001"}


async def test_a_handoff_past_its_timeout_is_reported_and_frees_its_budget(env: SharderEnvironment) -> None:
    await env.ring(maxInFlight=2, drainTimeoutSeconds=1)
    stuck = await env.shard("a")
    names = belonging_to("b", "ab", 4)
    await env.sites_of(stuck, names)
    await env.shard("b")
    async with env.sharder():
        await eventually(env.drains, lambda drains: set(drains) == set(names))
        await env.until_condition("DrainStuck", status="True", says=stuck.name)
        await eventually(
            lambda: env.event_notes("DrainTimeout"),
            lambda notes: any(stuck.name in note for note in notes),
        )
        await asyncio.sleep(0.5)
    assert await stuck.holder() == stuck.name, "policy Wait takes nothing by force"
    assert set((await env.owners()).values()) == {stuck.name}


async def test_policy_force_takes_the_lease_contested_before_anything_moves(env: SharderEnvironment) -> None:
    await env.ring(drainTimeoutSeconds=1, drainPolicy="Force", maxLeaseDurationSeconds=2)
    stuck = await env.shard("a")
    names = belonging_to("b", "ab", 2)
    await env.sites_of(stuck, names)
    await env.shard("b")
    async with env.sharder():
        await eventually(stuck.lease, lambda lease: KEYS.contested in lease.metadata.annotations)
        assert set((await env.owners()).values()) == {stuck.name}
        await eventually(env.owners, lambda owners: set(owners.values()) == {"b-00000001"})
        assert await env.drains() == {}


async def test_a_request_in_flight_follows_the_ring(env: SharderEnvironment) -> None:
    """The target of a handoff dies before it arrives: the request points to where the object belongs now."""
    await env.ring()
    a = await env.shard("a")
    b = await env.shard("b")
    name = belonging_to("b", "ab", 1)[0]
    await env.site(name, labels={KEYS.shard: a.name})
    async with env.sharder():
        await eventually(env.drains, {name: b.name})
        await b.release()
        await eventually(env.drains, {name: a.name})
        assert (await env.owners())[name] == a.name


async def test_a_paused_ring_moves_nothing_but_assigns_what_is_new(env: SharderEnvironment) -> None:
    await env.ring(paused=True)
    a, _ = await env.join("ab")
    strangers = belonging_to("b", "ab", 3)
    await env.sites_of(a, strangers[:2])
    async with env.sharder():
        await env.site(strangers[2])
        await eventually(env.owners, lambda owners: owners[strangers[2]] == "b-00000001")
        await asyncio.sleep(1.0)
        assert await env.drains() == {}
        await env.ring(paused=False)
        await eventually(env.drains, lambda drains: set(drains) == set(strangers[:2]))


async def test_a_ring_that_is_worked_carries_a_finalizer(env: SharderEnvironment) -> None:
    await env.ring()
    async with env.sharder():
        await eventually(env.status, lambda status: status.get("sharder") is not None)
        found = await env.client.get(CONTROLLER_RINGS, RING, type=HasMeta)
        assert found.metadata.finalizers == ["ringleader.dev/ring"]


async def test_a_deleted_ring_gives_every_object_up_and_goes_when_no_lease_is_held(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    a = await env.shard("a")
    await env.sites(5)
    async with env.sharder():
        await env.until_balanced()
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 5)
        await env.acknowledge_all()
        await asyncio.sleep(4)
        assert await env.exists(CONTROLLER_RINGS, RING), "a shard still holds its Lease"
        await a.release()
        await env.until_ring_is_gone()
    assert set((await env.owners()).values()) == {""}


async def test_objects_follow_the_selection_of_their_namespace(env: SharderEnvironment) -> None:
    await env.namespace("in", {"ring": "yes"})
    await env.namespace("out", {"ring": "no"})
    await env.ring(namespaceSelector={"matchLabels": {"ring": "yes"}})
    await env.shard("a")
    await env.site("inside", namespace="in")
    await env.site("outside", namespace="out")
    async with env.sharder():
        await eventually(env.owners, {"inside": "a-00000001", "outside": ""})
        await env.until_balanced()
        await env.label_namespace("out", {"ring": "yes"})
        await eventually(env.owners, {"inside": "a-00000001", "outside": "a-00000001"})
        await env.label_namespace("in", {"ring": "no"})
        await eventually(env.drains, {"inside": ""})


async def test_shards_of_the_reference_implementation_are_asked_for_children_too(
    env: SharderEnvironment,
) -> None:
    """Without `protocol` a shard answers for each object by itself (protocol, 6.4)."""
    await env.ring()
    a = await env.shard("a", protocol="")
    name = belonging_to("b", "ab", 1)[0]
    site = await env.site(name, labels={KEYS.shard: a.name})
    await env.page(site, labels={KEYS.shard: a.name})
    await env.shard("b", protocol="")
    async with env.sharder():
        await eventually(env.drains, lambda drains: name in drains)
        await eventually(lambda: env.drains(CONFIGMAPS), lambda drains: name in drains)


async def test_a_status_that_a_former_leader_writes_late_is_overwritten(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(3)
    async with env.sharder():
        await env.until_balanced()
        await env.report(unassigned=99)
        await eventually(lambda: unassigned(env), 0)
        written = status_writes(env)
        await asyncio.sleep(3)
        assert status_writes(env) == written


async def unassigned(env: SharderEnvironment) -> object:
    """Objects without an owner by the ring's status."""
    return (await env.status())["unassigned"]


def status_writes(env: SharderEnvironment) -> int:
    return sum(write.resource == CONTROLLER_RINGS.group_resource for write in env.writes())
