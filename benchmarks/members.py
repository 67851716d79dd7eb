"""`python -m benchmarks.members`: one sharder and a thousand members that renew, on a real kube-apiserver.

The members hold Leases with our own Lease code and answer drains; they are one process, so that the server's cores
belong to the server. Measured: the sharder at rest, and how long one more member waits for its share.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.measuring.command import Benchmark, Format, PlaneName, run_benchmark
from benchmarks.measuring.document import Beginning, Document
from benchmarks.measuring.goals import Figure, Goal, Wanted
from benchmarks.measuring.machine import read_versions
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import wait_for
from benchmarks.sharder.fleet import Sharder, owners_on, sharding
from benchmarks.sharder.ground import Ground, open_ground
from benchmarks.sharder.rows import Peaks
from loadtest.machine import family, rss_mb

GOALS: Final = {
    "rest-cpu": Wanted("sharder at rest beside renewals", Goal(most=10, unit="% of a core")),
    "rest-rss": Wanted("the same, RSS", Goal(most=80, unit="MB")),
    "renewal": Wanted("CPU of the sharder for a renewal", Goal(most=0.3, unit="ms")),
    "join": Wanted("one more member: from its Lease to the last object of its share", Goal(most=5, unit="s")),
    "peak": Wanted("peak RSS of the sharder", Goal(unit="MB")),
}
JOINED_WITHIN_S: Final = 60.0
PAUSED_S: Final = 0.5
"""Renewals that are under way are over then."""
ONE_MORE: Final = "one-more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    members: int
    objects: int
    lease_s: int
    rest_s: float
    is_real: bool

    @property
    def renewals_per_s(self) -> float:
        return self.members * 3 / self.lease_s


def bench_members(
    *,
    members: Annotated[int, typer.Option(min=2, help="Members that renew.")] = 1000,
    objects: Annotated[int, typer.Option(min=100, help="Objects on the ring.")] = 10_000,
    lease_s: Annotated[int, typer.Option(min=3, help="Duration of the members' Leases.")] = 15,
    rest_s: Annotated[float, typer.Option(min=5, help="Seconds for which the rest is measured.")] = 60.0,
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/bench-members"),
    output: Annotated[Format, typer.Option("--output", "-o", help="What to print.")] = Format.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a goal is missed.")] = False,
) -> None:
    """One sharder beside many members: CPU and memory at rest, and a join.

    Exit codes: 0 measured, 1 a figure could not be measured (with --strict: or missed its goal), 2 bad input.
    """
    options = Options(
        members=members,
        objects=objects,
        lease_s=lease_s,
        rest_s=rest_s,
        is_real=plane is PlaneName.REAL,
    )
    Benchmark[Document](
        run=lambda folder, meter, save: measure(options, folder, meter, save),
        out=out,
        output=output,
        strict=strict,
    ).exit()


async def measure(
    options: Options, directory: Path, meter: Meter, save: Callable[[Document], object]
) -> Document:
    """Raises: BinariesMissing, and what makes the run impossible."""
    began = Beginning(module="benchmarks.members", is_real=options.is_real, objects=options.objects)
    peaks = Peaks()
    async with open_ground(
        directory,
        is_real=options.is_real,
        objects=options.objects,
        lease_s=15,
        stand_in_lease_s=options.lease_s,
    ) as ground:
        versions = await read_versions(ground.plane, ground.client)
        with meter.counting("members join", options.members) as tick:
            for number in range(options.members):
                await ground.stand_ins.join([f"member-{number:04}"])
                tick(1)
        with meter.counting("creating the objects", options.objects) as tick:
            await ground.stock.set(owners_on(ground, ground.stand_ins.shards), tick)
        async with sharding(ground, peaks, row="rest") as sharder:
            rest = await measure_rest(ground, meter, options, sharder)
            rows = [rest, await measure_join(ground, sharder)]
            rows.append(await measure_renewal(ground, options, sharder, rest))
        figures = [one for row in rows for one in row.figures]
        figures.append(_figure("peak", max(peaks.by_row.values())))
        document = began.document(Document, rows, figures, versions=versions)
        save(document)
        return document


async def measure_rest(ground: Ground, meter: Meter, options: Options, sharder: Sharder) -> Row:
    """What the sharder uses while members renew and nothing else happens."""
    await sharder.wait_idle(within_s=300)
    cores = Cores(family(sharder.running.pid), ground.clock)
    with meter.counting("at rest", None):
        await asyncio.sleep(options.rest_s)
    how = f"{options.members:,} members, {options.renewals_per_s:,.0f} renewals a second"
    return Row(
        key="rest",
        figures=[
            _figure("rest-cpu", 100 * cores.used(), how),
            _figure("rest-rss", rss_mb(sharder.running.pid)),
        ],
    )


async def measure_renewal(ground: Ground, options: Options, sharder: Sharder, rest: Row) -> Row:
    """What the sharder uses without renewals, for a third of a duration, which no member is missed for."""
    ground.stand_ins.is_paused = True
    await asyncio.sleep(PAUSED_S)
    cores = Cores(family(sharder.running.pid), ground.clock)
    await asyncio.sleep(options.lease_s / 3 - PAUSED_S)
    without = 100 * cores.used()
    ground.stand_ins.is_paused = False
    more = next(
        figure.value for figure in rest.figures if figure.key == "rest-cpu" and figure.value is not None
    )
    each_ms = 10 * (more - without) / options.renewals_per_s
    return Row(key="renewal", figures=[_figure("renewal", each_ms, f"{without:.1f} % of a core without")])


async def measure_join(ground: Ground, sharder: Sharder) -> Row:
    """One more member joins while the others renew."""
    sightings, stand_ins = ground.sightings, ground.stand_ins
    sightings.start_over()
    began_at = ground.clock.now()
    await stand_ins.join([ONE_MORE])
    newcomer = stand_ins.shards[ONE_MORE]
    share = sum(owner == newcomer for owner in owners_on(ground, stand_ins.shards).values())
    await wait_for(
        lambda: sightings.owned[newcomer] >= share,
        f"{ONE_MORE} to own its {share} objects",
        within_s=JOINED_WITHIN_S,
    )
    gained = sightings.gained([newcomer])
    took_s = max((change.at for change in gained), default=began_at) - began_at
    await sharder.wait_idle(within_s=300)
    return Row(key="join", figures=[_figure("join", took_s, f"{share} objects, {len(sightings.log)} moved")])


def _figure(key: str, value: float | None, how: str = "") -> Figure:
    return GOALS[key].figure(key, value, how)


if __name__ == "__main__":
    sys.exit(run_benchmark(bench_members, module="benchmarks.members"))
