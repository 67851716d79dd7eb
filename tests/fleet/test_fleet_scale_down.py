"""A StatefulSet is scaled down: the replica that goes hands its objects over before it ends, although places are held.

The StatefulSet is an object of the API; the tests do what its controller and a kubelet would do.
"""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet
from tests.fleet.judging import judge, unattended_s
from tests.stateful_sets import scale, serve_stateful_sets

pytestmark = [pytest.mark.fleet, pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]

HOLD_S = 120
GRACE_S = 90
WORKLOAD = "replica"
SITES = FleetSpec().namespace
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def fleet_spec() -> FleetSpec:
    return FleetSpec(
        lease_s=2,
        settle_s=1,
        environment={WAIT_MS: "0-200", "POD_NAMESPACE": SITES},
        shard_flags=("--hold", "--termination-grace-period", str(GRACE_S)),
        ring_spec={"holdSeconds": HOLD_S},
    )


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def three(fleet: Fleet) -> None:
    """Every test begins with the members replica-1 to replica-3, as their StatefulSet wants it."""
    await serve_stateful_sets(fleet.client)
    await scale_to(fleet, 3)


async def scale_to(fleet: Fleet, replicas: int) -> None:
    await scale(fleet.client, WORKLOAD, replicas, namespace=SITES, start=1)


async def scale_away(fleet: Fleet, *names: str) -> None:
    """End replicas as a kubelet does, and leave their places empty; they must end by themselves."""
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(fleet.members[name].stop(grace_s=GRACE_S))
    assert [fleet.members[name].exits[-1].code for name in names] == [0] * len(names)


async def begin_to_leave(fleet: Fleet, name: str) -> str:
    """SIGTERM, while the ring is paused: the replica says that it is leaving, and nothing moves. Its shard."""
    shard = fleet.life(name) or ""
    await pause(fleet, True)
    await scale_to(fleet, 3)
    replica = fleet.members[name]
    replica.abandon()
    assert replica.current is not None
    replica.current.terminate()

    async def is_leaving() -> bool:
        lease = await fleet.client.get(LEASES, shard, namespace=fleet.spec.lease_namespace)
        return bool(lease["metadata"]["annotations"].get(fleet.spec.keys.leaving) == "true")

    await fleet.wait_for(is_leaving, f"{name} to say that it is leaving", within_s=WITHIN_S)
    return shard


async def pause(fleet: Fleet, paused: bool) -> None:
    await fleet.client.merge(CONTROLLER_RINGS, fleet.spec.ring, {"spec": {"paused": paused}})


async def test_a_replica_that_is_scaled_away_hands_its_objects_over_before_it_ends(fleet: Fleet) -> None:
    name = await fleet.join()
    since = fleet.clock.now()
    await scale_away(fleet, name)
    evidence = await judge(fleet)
    assert unattended_s(evidence) < HOLD_S / 2
    assert evidence.movement(since=since, until=fleet.clock.now()).moved > 0
    assert set(fleet.lives().values()) == {"replica-1", "replica-2", "replica-3"}


async def test_a_roll_moves_nothing(fleet: Fleet) -> None:
    since = fleet.clock.now()
    await fleet.roll()
    evidence = await judge(fleet)
    assert evidence.movement(since=since, until=fleet.clock.now()).moved == 0


async def test_two_leave_at_once_while_the_sharders_fail_over(fleet: Fleet) -> None:
    names = [await fleet.join(), await fleet.join()]
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(scale_away(fleet, *names))
        await fleet.kill_leader()
        await leaving
    evidence = await judge(fleet)
    assert unattended_s(evidence) < HOLD_S / 2


async def test_a_replica_that_is_killed_while_it_leaves_gives_its_objects_up_after_its_lease(
    fleet: Fleet,
) -> None:
    name = await fleet.join()
    shard = await begin_to_leave(fleet, name)
    assert shard in (await fleet.owners()).values()
    await fleet.kill(name)
    await pause(fleet, False)
    evidence = await judge(fleet)
    assert unattended_s(evidence) < HOLD_S / 2


async def test_a_replica_that_is_wanted_again_while_it_leaves_is_back_with_its_next_life(
    fleet: Fleet,
) -> None:
    name = await fleet.join()
    shard = await begin_to_leave(fleet, name)
    await scale_to(fleet, 4)
    await pause(fleet, False)
    exits = fleet.members[name].exits
    before = len(exits)
    await fleet.wait_for(lambda: len(exits) > before or fleet.members[name].current is None, f"{name} to end")
    assert exits[-1].code == 0
    await fleet.join(name)
    evidence = await judge(fleet)
    assert unattended_s(evidence) < HOLD_S / 2
    assert fleet.life(name) not in (None, shard)
    await scale_to(fleet, 3)
    await scale_away(fleet, name)
    await judge(fleet)
