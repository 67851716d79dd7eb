"""From one leader to a ring and back, under load: nobody works on what another one still has (protocol, section 7).

The former controller is leader-elected; its Lease decides. Both checks cover all three phases and the time
between them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane, Write
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from ringleader.testing.commands import WAIT_MS, FleetSpec, Mode
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.ownership_checks import accepted, foreign_writes
from ringleader.testing.single_task import single_task

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.real_apart,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

ELECTED = ("replica-1", "replica-2")
SHARDED = ("replica-3", "replica-4", "replica-5")
FORMER = {"namespace": "sites", "name": "websites"}
OBJECTS = 60
UPDATES_PER_S = 15.0


@pytest.fixture(scope="module")
def fleet_spec() -> FleetSpec:
    return FleetSpec(
        lease_s=4,  # on a busy machine the leader must not lose what the test wants it to keep
        settle_s=1,
        environment={WAIT_MS: "0-100"},
        ring_spec={"activation": {"lease": FORMER}},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    plane: ControlPlane, fleet_spec: FleetSpec, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    """Two replicas of which one leads, no sharder, 60 objects."""
    async with single_task(open_fleet(plane, tmp_path_factory.mktemp("fleet"), spec=fleet_spec)) as fleet:
        await fleet.objects.create_many(OBJECTS)
        fleet.mode = Mode.LEADER_ELECTED
        for name in ELECTED:
            await fleet.add_member(name)
        await fleet.wait_up()
        yield fleet


async def holder(fleet: Fleet) -> str:
    """Who holds the former controller's Lease."""
    lease = await fleet.client.get(LEASES, FORMER["name"], namespace=FORMER["namespace"])
    return str(lease["spec"].get("holderIdentity") or "")


async def are_fresh(fleet: Fleet) -> bool:
    return not await fleet.objects.stale()


def disguised(fleet: Fleet, *, elected: Collection[str], sharded: Collection[str]) -> list[str]:
    """Accepted writes of shards to what was not theirs, and of the leader to what was a shard's."""
    spec, writes = fleet.spec, fleet.plane.writes()
    foreign = foreign_writes(
        writes,
        keys=spec.keys,
        resources=spec.resources,
        controlled=frozenset(kind.group_resource for kind in spec.controlled),
        replicas=frozenset(sharded),
    )
    return [str(one) for one in foreign] + [
        f"{write.name}: {write.verb} by {write.user}, who leads nothing of {label}"
        for write in writes
        if (label := _label(fleet, write)) and write.user in elected
    ]


def _label(fleet: Fleet, write: Write) -> str:
    """The shard whose name the object of an accepted write bore just before."""
    if not accepted(write) or write.resource not in fleet.spec.resources:
        return ""
    return (write.labels_before or {}).get(fleet.spec.keys.shard, "")


async def test_from_one_leader_to_a_ring_and_back_nobody_works_twice(fleet: Fleet) -> None:
    async with asyncio.TaskGroup() as tasks:
        updates = fleet.objects.run_updates(per_s=UPDATES_PER_S, rng=random.Random(7))
        traffic = tasks.create_task(updates, name="updates")
        await to_the_ring(fleet)
        await while_sharded(fleet)
        await back_to_one_leader(fleet)
        traffic.cancel()
    await fleet.wait_for(lambda: are_fresh(fleet), "the leader to be done with everything", within_s=60)
    evidence = fleet.evidence()
    evidence.require_reconciles(300)
    assert not evidence.overlaps, "\n".join(map(str, evidence.overlaps))
    found = disguised(fleet, elected=ELECTED, sharded=SHARDED)
    assert not found, "\n".join(found)
    workers = {interval.shard.rpartition("-")[0] for interval in evidence.intervals}
    assert workers >= {*SHARDED}, "the shards worked"
    assert workers & {*ELECTED}, "so did the leader"


async def to_the_ring(fleet: Fleet) -> None:
    """Ring, sharders and shards come while one leader works; they wait until it has ended."""
    fleet.mode = Mode.SHARDED
    await fleet.create_ring()
    await fleet.start_sharders()
    for name in SHARDED:
        await fleet.add_member(name)
    await fleet.wait_for(
        lambda: all(fleet.life(name) for name in SHARDED), "the shards to be up", within_s=60
    )
    looks = 0
    for _ in range(2 * fleet.spec.lease_s):
        owners = set((await fleet.owners()).values())
        if (await holder(fleet)).startswith("replica-"):
            assert owners == {""}, "the former controller still leads"
            looks += 1
        await asyncio.sleep(1.0)
    assert looks, "nobody led: the test proves nothing"
    async with asyncio.TaskGroup() as ending:
        for name in ELECTED:
            ending.create_task(fleet.leave(name), name=f"leave {name}")
    await fleet.wait_converged(within_s=60)
    assert await holder(fleet) == "ringleader:websites"


async def while_sharded(fleet: Fleet) -> None:
    """The Lease stays with the ring, whatever becomes of its sharders."""
    await fleet.kill_leader()
    await asyncio.sleep(2 * fleet.spec.lease_s)
    assert await holder(fleet) == "ringleader:websites"
    await fleet.wait_converged(within_s=60)


async def back_to_one_leader(fleet: Fleet) -> None:
    """The former controller is started again; the ring is deleted; it leads once the last shard has left."""
    fleet.mode = Mode.LEADER_ELECTED
    for name in ELECTED:
        await fleet.add_member(name)
    await fleet.client.delete(CONTROLLER_RINGS, fleet.spec.ring)

    async def given_up() -> bool:
        return set((await fleet.owners()).values()) == {""}

    await fleet.wait_for(given_up, "every object to be given up", within_s=60)
    assert await holder(fleet) == "ringleader:websites", "shards still hold their Leases"
    async with asyncio.TaskGroup() as ending:
        for name in SHARDED:
            ending.create_task(fleet.leave(name), name=f"leave {name}")

    async def leads() -> bool:
        return (await holder(fleet)).startswith("replica-")

    await fleet.wait_for(leads, "the former controller to lead again", within_s=60)
