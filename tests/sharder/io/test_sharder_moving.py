"""Objects of a live owner move by its own hand only; requests are limited, redirected, reported, withdrawn."""

from __future__ import annotations

import asyncio

from kubeio.models import HasMeta
from kubeio.protocol import CONTROLLER_RINGS
from ring import HashRing
from ring.key import object_key
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, Ground, is_balanced, wait_until


def belonging_to(member: str, members: list[str], count: int) -> list[str]:
    """Names of sites that the ring of *members* gives to *member*."""
    ring = HashRing(members)
    names = (f"site-{n}" for n in range(10_000))
    found = (name for name in names if ring.owner(object_key("example.com", "default", name)) == member)
    return [next(found) for _ in range(count)]


async def test_a_join_asks_for_what_belongs_to_the_newcomer_and_nothing_else(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(40)
    ring = HashRing(["a", "b"])
    expected = {
        f"site-{n}" for n in range(40) if ring.owner(object_key("example.com", "default", f"site-{n}")) == "b"
    }
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await ground.shard("b")

        async def asked() -> bool:
            return set(await ground.drains()) == expected

        await wait_until(asked)
        assert set((await ground.drains()).values()) == {"b-00000001"}
        assert set((await ground.owners()).values()) == {"a-00000001"}, "only the owner passes an object on"
        for name in expected:
            await ground.acknowledge(name)
        await wait_until(lambda: is_balanced(ground))

        async def told() -> bool:
            return any(note.endswith("on the ring: a, b") for note in await ground.event_notes("Converged"))

        await wait_until(told)
    writes = [
        w for w in ground.plane.writes() if w.user == "sharder-1" and w.name in expected and w.code == 200
    ]
    assert len(writes) == 2 * len(expected), "one assignment and one request for each"


async def test_no_more_handoffs_are_in_flight_than_the_ring_allows(ground: Ground) -> None:
    await ground.ring(maxInFlight=5, maxInFlightPerOwner=3)
    a, c = await ground.shard("a"), await ground.shard("c")
    members = ["a", "b", "c"]
    for name in belonging_to("b", members, 16)[:8]:
        await ground.site(name, labels={KEYS.shard: a.name})
    for name in belonging_to("b", members, 16)[8:]:
        await ground.site(name, labels={KEYS.shard: c.name})
    await ground.shard("b")
    most = 0
    async with ground.sharder():
        for _ in range(60):
            labels = {n: found for n, found in (await ground.labels()).items() if KEYS.drain in found}
            owners = [found[KEYS.shard] for found in labels.values()]
            most = max(most, len(owners))
            assert len(owners) <= 5
            assert max((owners.count(name) for name in set(owners)), default=0) <= 3
            for name in labels:
                await ground.acknowledge(name)
            await asyncio.sleep(0.05)
        await wait_until(lambda: is_balanced(ground))
    assert most >= 3, "the limit was never reached: the test proves nothing"
    assert set((await ground.owners()).values()) == {"b-00000001"}


async def test_a_handoff_past_its_timeout_is_reported_and_gives_its_room_back(ground: Ground) -> None:
    await ground.ring(maxInFlight=2, drainTimeoutSeconds=1)
    stuck = await ground.shard("a")
    names = belonging_to("b", ["a", "b"], 4)
    for name in names:
        await ground.site(name, labels={KEYS.shard: stuck.name})
    await ground.shard("b")
    async with ground.sharder():

        async def all_asked() -> bool:
            return set(await ground.drains()) == set(names)

        async def reported() -> bool:
            condition = await ground.condition("DrainStuck")
            return condition.get("status") == "True" and stuck.name in str(condition["message"])

        async def told() -> bool:
            return any(stuck.name in note for note in await ground.event_notes("DrainTimeout"))

        await wait_until(all_asked)
        await wait_until(reported)
        await wait_until(told)
        await asyncio.sleep(0.5)
    assert await stuck.holder() == stuck.name, "policy Wait takes nothing by force"
    assert set((await ground.owners()).values()) == {stuck.name}


async def test_policy_force_takes_the_lease_contested_before_anything_moves(ground: Ground) -> None:
    await ground.ring(drainTimeoutSeconds=1, drainPolicy="Force", maxLeaseDurationSeconds=2)
    stuck = await ground.shard("a")
    names = belonging_to("b", ["a", "b"], 2)
    for name in names:
        await ground.site(name, labels={KEYS.shard: stuck.name})
    await ground.shard("b")
    async with ground.sharder():

        async def contested() -> bool:
            return KEYS.contested in (await stuck.lease()).metadata.annotations

        await wait_until(contested)
        assert set((await ground.owners()).values()) == {stuck.name}

        async def moved() -> bool:
            return set((await ground.owners()).values()) == {"b-00000001"}

        await wait_until(moved)
        assert await ground.drains() == {}


async def test_a_request_in_flight_follows_the_ring(ground: Ground) -> None:
    """The target of a handoff dies before it arrives: the request points to where the object belongs now."""
    await ground.ring()
    a = await ground.shard("a")
    b = await ground.shard("b")
    name = belonging_to("b", ["a", "b"], 1)[0]
    await ground.site(name, labels={KEYS.shard: a.name})
    async with ground.sharder():

        async def to(shard: str) -> bool:
            return (await ground.drains()).get(name) == shard

        await wait_until(lambda: to(b.name))
        await b.release()
        await wait_until(lambda: to(a.name))
        assert (await ground.owners())[name] == a.name


async def test_a_paused_ring_moves_nothing_but_assigns_what_is_new(ground: Ground) -> None:
    await ground.ring(paused=True)
    a = await ground.shard("a")
    await ground.shard("b")
    strangers = belonging_to("b", ["a", "b"], 3)
    for name in strangers[:2]:
        await ground.site(name, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await ground.site(strangers[2])

        async def assigned() -> bool:
            return (await ground.owners())[strangers[2]] == "b-00000001"

        await wait_until(assigned)
        await asyncio.sleep(1.0)
        assert await ground.drains() == {}
        await ground.ring(paused=False)

        async def asked() -> bool:
            return set(await ground.drains()) == set(strangers[:2])

        await wait_until(asked)


async def test_a_ring_that_is_worked_carries_a_finalizer(ground: Ground) -> None:
    await ground.ring()
    async with ground.sharder():

        async def is_worked() -> bool:
            return (await ground.status()).get("sharder") is not None

        await wait_until(is_worked)
        found = await ground.client.get(CONTROLLER_RINGS, RING, type=HasMeta)
        assert found.metadata.finalizers == ["ringleader.dev/ring"]


async def test_a_deleted_ring_gives_every_object_up_and_goes_when_no_lease_is_held(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    await ground.sites(5)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await ground.client.delete(CONTROLLER_RINGS, RING)

        async def asked() -> bool:
            return list((await ground.drains()).values()) == [""] * 5

        await wait_until(asked)
        for name in await ground.drains():
            await ground.acknowledge(name)
        await asyncio.sleep(4)
        assert await ground.exists(CONTROLLER_RINGS, RING), "a shard still holds its Lease"
        await a.release()

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)
    assert set((await ground.owners()).values()) == {""}


async def test_objects_follow_the_selection_of_their_namespace(ground: Ground) -> None:
    await ground.namespace("in", {"ring": "yes"})
    await ground.namespace("out", {"ring": "no"})
    await ground.ring(namespaceSelector={"matchLabels": {"ring": "yes"}})
    await ground.shard("a")
    await ground.site("inside", namespace="in")
    await ground.site("outside", namespace="out")
    async with ground.sharder():

        async def only_inside() -> bool:
            return await ground.owners() == {"inside": "a-00000001", "outside": ""}

        await wait_until(only_inside)
        await wait_until(lambda: is_balanced(ground))
        await ground.label_namespace("out", {"ring": "yes"})

        async def both() -> bool:
            return await ground.owners() == {"inside": "a-00000001", "outside": "a-00000001"}

        await wait_until(both)
        await ground.label_namespace("in", {"ring": "no"})

        async def released() -> bool:
            return await ground.drains() == {"inside": ""}

        await wait_until(released)


async def test_shards_of_the_reference_implementation_are_asked_for_children_too(ground: Ground) -> None:
    """Without `protocol` a shard answers for each object by itself (protocol, 6.4)."""
    await ground.ring()
    a = await ground.shard("a", protocol="")
    name = belonging_to("b", ["a", "b"], 1)[0]
    site = await ground.site(name, labels={KEYS.shard: a.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    await ground.shard("b", protocol="")
    async with ground.sharder():

        async def both_asked() -> bool:
            pages = await ground.labels(CONFIGMAPS)
            return KEYS.drain in (await ground.labels())[name] and KEYS.drain in pages[name]

        await wait_until(both_asked)
