"""Processes that look alive and do not work: a watch that says nothing, an event loop that stands still.

Trap 21 of the protocol, section 9 (event loop blocked with a healthy heartbeat thread).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devcluster.faults import Fault
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet
from tests.fleet.judging import judge

pytestmark = [pytest.mark.fleet, pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]
STUMBLING = Path(__file__).with_name("controllers") / "stumbling.py"


@pytest.fixture(scope="module")
def has_faults() -> bool:
    return True


@pytest.fixture(scope="module")
def fleet_spec() -> FleetSpec:
    flags = ("--progress-deadline", "6", "--watch-silence", "4")
    return FleetSpec(controller=f"{STUMBLING}:websites", lease_s=2, settle_s=1, shard_flags=flags)


async def test_a_replica_whose_event_loop_is_blocked_ends_and_others_take_over(fleet: Fleet) -> None:
    ref = fleet.objects.refs[3]
    owner = await fleet.owner(ref)
    exits = fleet.members[owner].exits
    before = len(exits)
    await fleet.patch(ref, {"spec": {"html": "block 60"}})
    await fleet.wait_for(lambda: len(exits) > before, f"{owner} to give up", within_s=40)
    assert exits[-1].code not in (0, None)
    assert not exits[-1].asked
    await fleet.patch(ref, {"spec": {"html": "well again"}})
    await judge(fleet)


async def test_a_watch_that_says_nothing_any_more_is_started_again(fleet: Fleet) -> None:
    """The connection stands, nothing comes: the classic way to lose updates without an error."""
    faults, victim = fleet.plane.faults, "replica-2"
    await judge(fleet)
    process = fleet.members[victim].current
    fault = await faults.add(Fault(what="mute_watches", user=victim))
    await faults.clear(fault)  # streams that were muted stay so
    await asyncio.sleep(0.5)
    await fleet.objects.update_all()
    wanted = await fleet.objects.generations()
    await asyncio.sleep(1.5)
    assert await fleet.objects.behind(wanted), "the fault did not strike"

    async def all_seen() -> bool:
        return not await fleet.objects.behind(wanted)

    await fleet.wait_for(all_seen, f"{victim} to notice", within_s=20)
    await judge(fleet)
    assert fleet.members[victim].current is process


async def test_a_reconciler_that_raises_holds_up_its_own_object_only(fleet: Fleet) -> None:
    ref = fleet.objects.refs[5]
    await fleet.patch(ref, {"spec": {"html": "fail"}})
    others = await fleet.objects.generations()
    others.pop(ref.uid)

    async def rest_is_fresh() -> bool:
        return not await fleet.objects.behind(others)

    await fleet.wait_for(rest_is_fresh, "the other objects to be reconciled", within_s=30)
    await fleet.patch(ref, {"spec": {"html": "mended"}})
    await judge(fleet)
