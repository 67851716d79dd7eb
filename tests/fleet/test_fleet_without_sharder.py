"""Every sharder is away for many leases: reconciles go on, new objects wait, and are assigned at once afterwards.

The pause is five Leases of 2 s, and ten minutes in `make failover`: a sharder that starts knows nothing of how long
nobody led.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest

from devcluster.plane import Write
from ringleader.testing.fleet import Fleet
from ringleader.testing.ownership_checks import LEASES as LEASE_WRITES
from ringleader.testing.ownership_checks import accepted
from tests.fleet.judging import judge

AWAY_S = float(os.environ.get("RINGLEADER_AWAY_S", "10"))
pytestmark = [
    pytest.mark.fleet,
    pytest.mark.real_apart,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120 + AWAY_S),
]

BACKLOG = 60
AT_ONCE_S = 10.0
"""From the first sharder's leadership to the last assignment, on a machine where the fleet shares two cores."""


async def stop_sharders(fleet: Fleet) -> None:
    async with asyncio.TaskGroup() as tasks:
        for place in fleet.sharders.values():
            tasks.create_task(place.stop(), name=f"stop {place.name}")


async def waiting(fleet: Fleet) -> list[str]:
    """Names of the objects without an owner that runs."""
    lives = fleet.lives()
    return [name for name, owner in (await fleet.owners()).items() if owner not in lives]


async def test_reconciles_go_on_new_objects_wait_and_the_backlog_is_assigned_at_once(fleet: Fleet) -> None:
    before = await fleet.owners()
    await stop_sharders(fleet)
    backlog = [ref.name for ref in await fleet.objects.create_many(BACKLOG, prefix="late")]
    wanted = await fleet.objects.generations()
    await asyncio.sleep(AWAY_S)

    async def old_ones_are_reconciled() -> bool:
        return set(await fleet.objects.behind(wanted)) <= set(backlog)

    await fleet.wait_for(old_ones_are_reconciled, "what was asked of owned objects meanwhile")
    assert sorted(await waiting(fleet)) == sorted(backlog)
    began = fleet.clock.now()
    await fleet.start_sharders()

    async def all_owned() -> bool:
        return not await waiting(fleet)

    await fleet.wait_for(all_owned, "the backlog to be assigned")
    evidence = await judge(fleet)
    after = await fleet.owners()
    assert {name: after[name] for name in before} == before, "nothing moves because nobody led"
    late = set(backlog)
    given = [
        write
        for write in evidence.writes
        if write.t >= began
        and accepted(write)
        and write.user in fleet.sharders
        and write.name in late
        and write.resource == fleet.spec.resource.group_resource
    ]
    assert sorted(write.name for write in given) == sorted(backlog), "one write for each"
    assert max(write.t for write in given) - led_at(evidence.writes, began) < AT_ONCE_S


def led_at(writes: Sequence[Write], since: float) -> float:
    """When a sharder held the election's Lease for the first time after *since*."""
    return next(
        write.t
        for write in writes
        if write.t >= since
        and write.resource == LEASE_WRITES
        and write.name == "ringleader-sharder"
        and accepted(write)
        and (write.object or {}).get("spec", {}).get("holderIdentity")
    )


async def test_a_replica_that_died_meanwhile_is_taken_after_a_silence_that_the_sharder_saw_itself(
    fleet: Fleet,
) -> None:
    await stop_sharders(fleet)
    victim = "replica-3"
    shard = fleet.life(victim)
    await fleet.kill(victim)
    await asyncio.sleep(AWAY_S)
    assert shard in (await fleet.owners()).values(), "nobody could take them"
    began = fleet.clock.now()
    await fleet.start_sharders()
    await fleet.wait_converged()
    assert fleet.clock.now() - began >= 2 * fleet.spec.lease_s
    await judge(fleet)
    await fleet.add_member(victim)
    await judge(fleet)
