"""What ends, and how long until somebody else goes on: the leading sharder, killed and asked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.sharder.fleet import Sharder, sharding
from benchmarks.sharder.goals import figure
from benchmarks.sharder.ground import Ground
from benchmarks.sharder.latency import create, delete
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import own_by_stand_ins
from sharder.settings import ELECTION_LEASE

_SETTLE_S: Final = 3.0
"""A standby has read what it needs by then."""
_TERMS: Final = 3
_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 120.0


async def measure_leader(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """A leader and a standby: the leader is killed; then each successor is asked to end."""
    await own_by_stand_ins(ground, meter)
    asked: list[float] = []
    async with AsyncExitStack() as stack:

        async def begin(number: int) -> Sharder:
            sharder = sharding(ground, peaks, row="leader", name=f"leader-{number}", wait=number == 0)
            return await stack.enter_async_context(sharder)

        leader = await begin(0)
        await leader.wait_idle()
        for number in range(_TERMS + 1):
            standby = await begin(number + 1)
            await asyncio.sleep(_SETTLE_S)
            took_s = await _next_write(ground, meter, leader, standby, by_kill=number == 0)
            if number == 0:
                killed_s = took_s
            else:
                asked.append(took_s)
            leader = standby
            await leader.wait_idle()
    how = f"of {len(asked)}: {', '.join(f'{took_s:.2f}' for took_s in asked)} s"
    return Row(
        key="leader",
        figures=[
            figure("leader-kill", killed_s, f"lease {options.lease_s} s"),
            figure("leader-term", max(asked), how),
        ],
        details={"kill_s": killed_s, "term_s": asked},
    )


async def _next_write(
    ground: Ground, meter: Meter, leader: Sharder, standby: Sharder, *, by_kill: bool
) -> float:
    """End *leader*; how long until *standby* gives an object to a shard. New objects come all the while."""
    seen = ground.sightings
    seen.start_over()
    ground.leases.start_over()
    ended_at = ground.clock.now()
    if by_kill:
        leader.running.process.kill()
    else:
        leader.running.process.terminate()
    names: list[str] = []
    what = "kill -9 of the leader" if by_kill else "SIGTERM of the leader"
    with meter.counting(f"{what} to the next write", None) as tick:
        while (written_at := _written_by(ground, standby.name)) is None:
            if ground.clock.now() - ended_at > _PATIENCE_S:
                raise NotSeen(f"{standby.name} wrote nothing for {_PATIENCE_S:g} s")
            names.append(f"waiting-{len(names)}")
            await create(ground, names[-1])
            tick(1)
            await asyncio.sleep(_EVERY_S)
    await wait_for(lambda: all(map(seen.owner_of, names)), "all new objects to be assigned", within_s=60)
    await delete(ground, names)
    return written_at - ended_at


def _written_by(ground: Ground, leader: str) -> float | None:
    """When the first object was given to a shard after *leader* had taken the lead."""
    led_at = next((c.at for c in ground.leases.log if c.name == ELECTION_LEASE and c.after == leader), None)
    if led_at is None:
        return None
    return next((c.at for c in ground.sightings.log if c.after and c.at >= led_at), None)
