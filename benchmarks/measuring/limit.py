"""One run of wrk: the limit that a program's own rates are compared with.

The rate is read from a watch of the benchmark's own that sees the program's writes as well, so that both are
counted alike. Whose requests they are, and what is seen of them, is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measuring.goals import round_off
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Series, series
from benchmarks.measuring.sightings import NotSeen
from benchmarks.measuring.wrk import Request, Tally, WrkFailed, sending
from devcluster.plane import ControlPlane
from kubeio.clock import Clock

PER_S_AT_MOST: Final = 2_000
"""How many patches are made ready for each second; a faster server is done sooner."""
_REFUSED_AT_MOST: Final = 0.02


@dataclass(frozen=True, slots=True)
class Limit:
    """What wrk reached: changes per second from the first one seen to the last."""

    per_s: float
    writes: int
    instants: list[float]
    tally: Tally
    server_cores: float
    server_ms_per_write: float

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.per_s),
            "writes": self.writes,
            "p50_ms": self.tally.p50_us / 1000,
            "p99_ms": self.tally.p99_us / 1000,
            "refused": self.tally.bad_statuses,
            "server_cores": self.server_cores,
            "server_ms_per_write": self.server_ms_per_write,
        }

    def series(self, name: str) -> Series:
        return series(name, self.instants, since=self.instants[0])


async def reach_limit(
    requests: Sequence[Request],
    *,
    plane: ControlPlane,
    directory: Path,
    headers: Mapping[str, str],
    connections: int,
    at_most_s: float,
    count: Callable[[], int],
    instants: Callable[[], list[float]],
    catch_up: Callable[[], Awaitable[None]],
    clock: Clock,
    meter: Meter,
) -> Limit:
    """Let wrk send every request once.

    *count* and *instants*: the writes that the watch has seen since; *catch_up* waits until it has seen all.
    Raises: WrkFailed, NotSeen.
    """
    cores = Cores(plane.pids, clock)
    async with sending(
        requests, directory, url=plane.url, headers=headers, connections=connections, at_most_s=at_most_s
    ) as wrk:
        with meter.counting("wrk, with the same patches", None) as tick:
            shown = 0
            while wrk.is_running and count() < len(requests):
                await asyncio.sleep(0.05)
                tick(count() - shown)
                shown = count()
        used = cores.used(), cores.ms_per(count())
        tally = await wrk.end()
    await catch_up()
    if tally.bad_statuses > _REFUSED_AT_MOST * max(1, count()):
        raise WrkFailed(f"the server refused {tally.bad_statuses} of {tally.requests} requests of wrk")
    return _limit(instants(), tally, used)


def _limit(instants: list[float], tally: Tally, used: tuple[float, float]) -> Limit:
    if len(instants) < 2 or instants[-1] <= instants[0]:
        raise NotSeen("no writes of wrk were seen")
    per_s = (len(instants) - 1) / (instants[-1] - instants[0])
    return Limit(per_s, len(instants), instants, tally, *used)
