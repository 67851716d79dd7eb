"""The row `leader`: how long after the end of the leading sharder another one writes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.measuring.observations import NotSeen, wait_for
from benchmarks.measuring.run import Run
from benchmarks.measuring.sharders import Sharder, own_by_stand_ins, sharding
from benchmarks.measuring.testbed import LEASE_S, Testbed
from sharder.settings import ELECTION_LEASE

_SETTLE_S: Final = 3.0
"""A standby has read what it needs by then."""
_TERMS: Final = 3
_EVERY_S: Final = 0.1
_WRITTEN_WITHIN_S: Final = 120.0


async def measure_leader(testbed: Testbed, run: Run) -> None:
    """A leader and a standby: the leader is killed; then each successor gets SIGTERM."""
    await own_by_stand_ins(testbed, run)
    waits_s: list[float] = []
    async with AsyncExitStack() as stack:

        async def begin(number: int) -> Sharder:
            sharder = sharding(testbed, row="leader", name=f"leader-{number}", wait=number == 0)
            return await stack.enter_async_context(sharder)

        leader = await begin(0)
        await leader.wait_idle()
        for number in range(_TERMS + 1):
            standby = await begin(number + 1)
            await asyncio.sleep(_SETTLE_S)
            waits_s.append(await next_write_s(testbed, run, leader, standby, by_kill=number == 0))
            leader = standby
            await leader.wait_idle()
    killed_s, *asked_s = waits_s
    run.figure("leader-kill", killed_s, f"lease {LEASE_S} s")
    run.figure(
        "leader-term",
        max(asked_s),
        f"of {len(asked_s)}: {', '.join(f'{wait_s:.2f}' for wait_s in asked_s)} s",
    )
    run.detail("leader", kill_s=killed_s, term_s=asked_s)


async def next_write_s(
    testbed: Testbed, run: Run, leader: Sharder, standby: Sharder, *, by_kill: bool
) -> float:
    """End *leader*; seconds until *standby* gives an object to a shard. New objects come all the while."""
    seen, leases = testbed.observations, testbed.leases
    seen.start_over()
    leases.start_over()

    def written_at() -> float | None:
        taken = (c.at for c in leases.log if c.name == ELECTION_LEASE and c.after == standby.name)
        led_at = next(taken, None)
        return None if led_at is None else next((c.at for c in seen.log if c.after and c.at >= led_at), None)

    ended_at = testbed.clock.now()
    if by_kill:
        leader.running.process.kill()
    else:
        leader.running.process.terminate()
    names: list[str] = []
    with run.console.counting(
        f"{'kill -9' if by_kill else 'SIGTERM'} of the leader to the next write", 0
    ) as tick:
        while (at := written_at()) is None:
            if testbed.clock.now() - ended_at > _WRITTEN_WITHIN_S:
                raise NotSeen(f"{standby.name} wrote nothing for {_WRITTEN_WITHIN_S:g} s")
            names.append(f"waiting-{len(names)}")
            await testbed.create(names[-1])
            tick(1)
            await asyncio.sleep(_EVERY_S)
    await wait_for(lambda: all(map(seen.owner_of, names)), "all new objects to be assigned", within_s=60)
    await testbed.delete(names)
    return at - ended_at
