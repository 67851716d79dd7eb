"""Reconciles with one fenced status write each, as a part of what the server takes: in turns with wrk.

wrk sends the same patches, made by the same fence from each object's newest version; both act under the same
ServiceAccount's token, with as many requests under way, and one watch counts both, from the first write that it sees
to the last. Each turn begins with the objects as they were made.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from benchmarks.measuring.goals import round_off
from benchmarks.measuring.limit import PER_S_AT_MOST, Limit, reach_limit
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Row, Series, series
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.measuring.wrk import Request
from benchmarks.runtime.contestants import ours
from benchmarks.runtime.goals import figure
from benchmarks.runtime.ground import Ground
from benchmarks.runtime.program import measured
from benchmarks.runtime.rows import Options
from kubeio.models import Meta
from kubeio.patch import JsonPatch
from kubeio.resource import ApiResource
from loadtest.machine import family
from shard_controller.shard.ownership import ExclusiveOwnership

MANAGER: Final = "websites"
"""Field manager: the name of the program's controller."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Writes:
    """One turn of ours."""

    instants: Sequence[float]
    to_first_write_s: float
    cores: dict[str, float] = field(default_factory=dict)
    cpu_ms: dict[str, float] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """From the first write to the last, as wrk is counted."""
        return (len(self.instants) - 1) / (self.instants[-1] - self.instants[0])

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.per_s),
            "writes": len(self.instants),
            "to_first_write_s": round(self.to_first_write_s, 2),
            "cores": self.cores,
            "cpu_ms_per_write": self.cpu_ms,
        }

    def series(self, name: str) -> Series:
        return series(name, self.instants, since=self.instants[0])


async def measure_writes(ground: Ground, meter: Meter, options: Options) -> Row:
    """wrk and our program in turns, as often as asked."""
    names = ground.stock.names[: max(1, int(options.limit_s * PER_S_AT_MOST))]
    row = Row(key="write")
    limits: list[Limit] = []
    turns: list[Writes] = []
    for number in range(options.rounds):
        limits.append(await _limit(ground, meter, options, names, value=f"wrk-{number}"))
        await _set_back(ground, meter)
        turns.append(await _write(ground, meter, options, len(names), value=f"turn-{number}"))
        await _set_back(ground, meter)
        row.series += [limits[-1].series(f"wrk {number + 1}"), turns[-1].series(f"ringleader {number + 1}")]
    limit = statistics.fmean(one.per_s for one in limits)
    reached = statistics.fmean(one.per_s for one in turns)
    row.details = {
        "limit_per_s": round_off(limit),
        "ringleader": [one.details() for one in turns],
        "wrk": [one.details() for one in limits],
    }
    row.figures = [figure("write", 100 * reached / limit, f"{reached:,.0f}/s of {limit:,.0f}/s")]
    return row


async def _write(ground: Ground, meter: Meter, options: Options, wanted: int, *, value: str) -> Writes:
    """Our program writes until *wanted* writes are seen, or for as long as wrk may run."""
    seen = ground.sightings.changes

    def flags() -> list[str]:
        return ["--act", "write", "--value", value, "--workers", str(options.connections)]

    began_at = ground.clock.now()
    async with measured(
        ground, "write", lambda order: [*ours(order), *flags()], objects=options.objects
    ) as program:
        await wait_for(lambda: seen, "the first status write", within_s=options.start_within_s)
        cores = {
            "ringleader": Cores(family(program.running.pid), ground.clock),
            "server": Cores(ground.plane.pids, ground.clock),
        }
        with meter.counting("reconciles with a status write", wanted) as tick:
            shown = 0
            while len(seen) < wanted and ground.clock.now() - seen[0].at < options.limit_s:
                tick(len(seen) - shown)
                shown = len(seen)
                await asyncio.sleep(_POLL_S)
        count = len(seen)
        used = {who: one.used() for who, one in cores.items()}
        per_write = {who: one.ms_per(count) for who, one in cores.items()}
    instants = [change.at for change in seen[:count]]
    if len(instants) < 2 or instants[-1] <= instants[0]:
        raise NotSeen(f"only {len(instants)} status writes were seen")
    return Writes(instants, instants[0] - began_at, used, per_write)


async def _limit(
    ground: Ground, meter: Meter, options: Options, names: Sequence[str], *, value: str
) -> Limit:
    """wrk sends for *names* what our program would send. Raises: WrkFailed, NotSeen."""
    seen = ground.sightings
    seen.start_over()
    return await reach_limit(
        [request(ground.resource, seen.meta(name, ground.namespace), value) for name in names],
        plane=ground.plane,
        directory=ground.directory,
        headers=headers(ground.account.token),
        connections=options.connections,
        at_most_s=options.limit_s,
        count=lambda: len(seen.changes),
        instants=lambda: [change.at for change in seen.changes],
        catch_up=ground.stock.catch_up,
        clock=ground.clock,
        meter=meter,
    )


def request(resource: ApiResource, meta: Meta, value: str) -> Request:
    """The patch that our program sends to the object that *meta* describes, if it has no status yet."""
    patch = JsonPatch(ExclusiveOwnership("").fence(meta).operations).add("/status", {"configMap": value})
    path = resource.path(namespace=meta.namespace, name=meta.name, subresource="status")
    return Request(f"{path}?{urlencode({'fieldManager': MANAGER})}", patch.encode())


def headers(token: str) -> dict[str, str]:
    """What our program sends with it."""
    return {
        "Authorization": f"Bearer {token}",
        "User-Agent": f"ringleader/{MANAGER}",
        "Accept": "application/json",
        "Content-Type": JsonPatch().content_type,
    }


async def _set_back(ground: Ground, meter: Meter) -> None:
    """Let every object that was written be as it was made."""
    await ground.stock.catch_up()
    names = sorted({change.name for change in ground.sightings.changes} & set(ground.stock.names))
    with meter.counting("setting the objects back", len(names)) as tick:
        await ground.set_back(names, tick)
