"""Replicas come, go, die and freeze: who was to move moves, nobody works twice, nothing is left behind.

Traps of the protocol, section 9: 1 (crashed shard back while its objects move), 8 (suspended in mid-reconcile
beyond its Lease, then writes), 19 (two lives of one member at once), 20 (rolling update while a pass runs).
"""

from __future__ import annotations

import pytest

from kubeio.shard.heartbeat import LOST_LEASE_EXIT
from kubeio.shard.kernel_timer import EXIT_CODE
from ringleader.testing.fleet import Fleet
from ringleader.testing.inflight_writes import catch_writes
from tests.fleet.conftest import OBJECTS
from tests.fleet.judging import judge, unattended_s

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def has_faults() -> bool:
    return True


async def test_a_replica_that_joins_gets_its_share_and_little_else_moves(fleet: Fleet) -> None:
    before, since = len(fleet.lives()), fleet.clock.now()
    name = await fleet.join()
    evidence = await judge(fleet)
    wanted = fleet.desired(fleet.lives().values(), [ref.name for ref in fleet.objects.refs])
    fair = sum(member == name for member in wanted.values())
    moved = evidence.movement(since=since, until=fleet.clock.now()).moved
    assert fair <= moved <= fair + OBJECTS // 10
    assert len(fleet.lives()) == before + 1


async def test_a_replica_that_leaves_hands_its_objects_over_at_once(fleet: Fleet) -> None:
    since = fleet.clock.now()
    await fleet.leave("replica-4")
    evidence = await judge(fleet)
    assert fleet.members["replica-4"].exits[-1].code == 0
    assert unattended_s(evidence) < 10
    assert evidence.movement(since=since, until=fleet.clock.now()).moved > 0


async def test_kill_9_leaves_the_objects_to_the_others_after_the_lease(fleet: Fleet) -> None:
    await fleet.kill("replica-2")
    evidence = await judge(fleet)
    assert "replica-2" not in fleet.lives().values()
    assert unattended_s(evidence) < 6 * fleet.spec.lease_s


async def test_a_crashed_replica_that_is_back_at_once_keeps_its_place_under_a_new_name(fleet: Fleet) -> None:
    await fleet.add_member("replica-2")
    await judge(fleet)
    before, since = fleet.life("replica-1"), fleet.clock.now()
    await fleet.kill("replica-1", again=True)
    evidence = await judge(fleet)
    assert fleet.life("replica-1") not in (None, before)
    movement = evidence.movement(since=since, until=fleet.clock.now())
    assert movement.renamed > 0


async def test_a_replica_frozen_beyond_its_lease_writes_no_more_when_it_wakes(fleet: Fleet) -> None:
    """Trap 8: writes of a suspended process, delayed in the network, meet objects that have another owner by now."""
    victim, since = "replica-3", fleet.clock.now()
    lost = fleet.life(victim)
    assert await catch_writes(fleet, victim), "it is frozen now, with writes on their way"
    await fleet.wait_converged()
    assert lost not in (await fleet.owners()).values()
    await fleet.release(victim)  # before it wakes: a server may drop requests whose client is gone
    await fleet.wait_for(lambda: _refused(fleet, victim, since), "a late write to be refused", within_s=20)
    fleet.wake(victim)
    exits = fleet.members[victim].exits
    await fleet.wait_for(lambda: exits and exits[-1].t > since, f"{victim} to end", within_s=20)
    assert exits[-1].code in (LOST_LEASE_EXIT, EXIT_CODE), "the exit timer needs no Python to wake"
    evidence = await judge(fleet)
    assert [w for w in evidence.refused_writes if w.user == victim and w.t > since]
    assert fleet.life(victim) not in (None, lost)


def _refused(fleet: Fleet, member: str, since: float) -> bool:
    writes = fleet.plane.writes()
    return any(write.user == member and write.t > since and write.code == 422 for write in writes)


async def test_all_replicas_are_rolled_while_objects_are_still_moving(fleet: Fleet) -> None:
    await fleet.add_member("replica-4")
    await fleet.roll()
    evidence = await judge(fleet)
    assert unattended_s(evidence) < 30


async def test_of_two_lives_of_one_member_the_latest_works_and_the_other_waits(fleet: Fleet) -> None:
    """Trap 19: a second process under the same member name, as after a node came back from a partition."""
    member = "replica-1"
    first = fleet.life(member)
    second = await fleet.second_life(member)

    async def second_has_all() -> bool:
        owners = set((await fleet.owners()).values())
        return second in owners and first not in owners

    await fleet.wait_for(second_has_all, "the second life to have the objects", within_s=30)
    await fleet.end_second_life(member)
    await judge(fleet)
    assert fleet.life(member) == first
