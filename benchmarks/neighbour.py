"""`python -m benchmarks.neighbour`: what other clients of the API server feel while the sharder writes labels.

A probe reads and patches one ConfigMap, 20 times a second each: beside nothing, beside wrk with 1 to 64 connections
that send the sharder's own patches, and beside the sharder in each pace. All take turns on one real kube-apiserver.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.measuring.command import Benchmark, Format, PlaneName, run_benchmark
from benchmarks.measuring.document import OURS, THEIRS, Beginning, Document
from benchmarks.measuring.goals import Figure, Goal, Wanted, round_off
from benchmarks.measuring.machine import read_versions
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.planes import make_account
from benchmarks.measuring.probe import Probe, probing
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import NotSeen
from benchmarks.measuring.wrk import find_wrk
from benchmarks.sharder.fleet import owners_on, sharding
from benchmarks.sharder.ground import LEASES_IN, MEMBERS, RING, Ground, open_ground
from benchmarks.sharder.limit import measure_limit
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import assign_all, set_owners
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from loadtest.quantiles import percentile
from sharder.ringspec.spec import Pace

CONNECTIONS: Final = (1, 2, 4, 8, 16, 64)
"""Of wrk, one run each."""
IDLE: Final = "idle"
IDLE_S: Final = 10.0
PER_S: Final = 20.0
LONGEST_S: Final = 30.0
"""Of one run of wrk."""
SETTLED_S: Final = 1.0
"""The first so many seconds of a run do not count, a quarter of it at most: the limit finds its place."""
GOALS: Final = {
    "background-p50": Wanted("Background: the probe's p50, of idle", Goal(most=1.5, unit="x")),
    "background-rate": Wanted("Background: patches, of wrk's best", Goal(least=60, unit="%")),
    "normal-p50": Wanted("Normal: the probe's p50, of idle", Goal(most=3, unit="x")),
    "normal-rate": Wanted("Normal: patches, of wrk's best", Goal(least=75, unit="%")),
    "urgent-p50": Wanted("Urgent: the probe's p50, of idle", Goal(most=5, unit="x")),
    "urgent-p99": Wanted("Urgent: the probe's p99, of idle", Goal(most=6, unit="x")),
    "urgent-rate": Wanted("Urgent: patches, of wrk's best", Goal(least=80, unit="%")),
    **{
        f"{pace.value.lower()}-curve": Wanted(
            f"{pace.value}: patches, of wrk's at the same p99 of the probe", Goal(least=80, unit="%")
        )
        for pace in Pace
    },
}


@dataclass
class Beside:
    """What the probe felt beside one load, run by run; milliseconds, and patches per second of the load."""

    name: str
    is_ours: bool = False
    per_s: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)
    """Writes that the sharder let be under way at the end of each run."""
    p50_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    p99_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, probe: Probe, since: float, until: float, per_s: float = 0.0) -> None:
        """A run from *since* to *until* at *per_s*."""
        self.per_s.append(per_s)
        answers = probe.between(since + min(SETTLED_S, (until - since) / 4), until)
        for verb in ("GET", "PATCH"):
            waits = [1000 * answer.took_s for answer in answers if answer.verb == verb]
            if not waits:
                raise NotSeen(f"the probe sent no {verb} beside {self.name}: measure with more --objects")
            self.p50_ms[verb].append(percentile(waits, 0.5))
            self.p99_ms[verb].append(percentile(waits, 0.99))

    @property
    def rate(self) -> float:
        return statistics.median(self.per_s)

    def p50(self, verb: str) -> float:
        return statistics.median(self.p50_ms[verb])

    def p99(self, verb: str) -> float:
        return statistics.median(self.p99_ms[verb])

    @property
    def worst_p99(self) -> float:
        """Of reads and patches the slower."""
        return max(self.p99("GET"), self.p99("PATCH"))

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.rate),
            **{f"{verb}_p50_ms": round_off(self.p50(verb)) for verb in self.p50_ms},
            **{f"{verb}_p99_ms": round_off(self.p99(verb)) for verb in self.p99_ms},
            "allowed": self.allowed,
            "runs": {"per_s": self.per_s, "p50_ms": dict(self.p50_ms), "p99_ms": dict(self.p99_ms)},
        }

    def shown(self) -> str:
        """In a few words."""
        waits = ", ".join(f"{verb} {self.p50(verb):.1f} / {self.p99(verb):.0f} ms" for verb in self.p50_ms)
        return f"{self.name}: {self.rate:,.0f}/s, {waits}"


def bench_neighbour(
    *,
    objects: Annotated[int, typer.Option(min=100, help="Objects, and patches of each run.")] = 8_000,
    rounds: Annotated[int, typer.Option(min=1, help="Times that all loads take turns.")] = 3,
    connections: Annotated[str, typer.Option(help="Runs of wrk, with commas between them.")] = ",".join(
        map(str, CONNECTIONS)
    ),
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/bench-neighbour"),
    output: Annotated[Format, typer.Option("--output", "-o", help="What to print.")] = Format.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a goal is missed.")] = False,
) -> None:
    """What the sharder costs other clients in each pace, beside a load generator with the same patches.

    Exit codes: 0 measured, 1 not measured (with --strict: or a goal missed), 2 bad input.
    """
    find_wrk()
    runs = [int(part) for part in connections.split(",")]
    Benchmark[Document](
        run=lambda folder, meter, save: Neighbours(meter, objects, rounds, runs).measure(
            folder, save, is_real=plane is PlaneName.REAL
        ),
        draw=lambda document, path: document.draw([_panel(document)], path, panel_inches=6),
        out=out,
        output=output,
        strict=strict,
    ).exit()


class Neighbours:
    """One run of the benchmark."""

    def __init__(self, meter: Meter, objects: int, rounds: int, connections: Sequence[int]) -> None:
        self._meter = meter
        self._objects = objects
        self._rounds = rounds
        self._idle = Beside(IDLE)
        self._wrk = {count: Beside(f"wrk, {count}") for count in connections}
        self._ours = {pace: Beside(pace.value, is_ours=True) for pace in Pace}

    async def measure(
        self, directory: Path, save: Callable[[Document], object], *, is_real: bool
    ) -> Document:
        """Raises: BinariesMissing, and what makes the run impossible."""
        began = Beginning(module="benchmarks.neighbour", is_real=is_real, objects=self._objects)
        async with open_ground(directory, is_real=is_real, objects=self._objects, lease_s=15) as ground:
            versions = await read_versions(ground.plane, ground.client)
            stranger = await make_account(ground.plane, ground.client, "stranger", namespace=LEASES_IN)
            await ground.stand_ins.join(MEMBERS)
            async with probing(
                stranger.kubeconfig, LEASES_IN, directory, per_s=PER_S, clock=ground.clock
            ) as probe:
                for number in range(self._rounds):
                    await self._round(ground, probe, is_reversed=number % 2 == 1)
                    save(began.document(Document, self._rows(), self._figures(), versions=versions))
        return began.document(Document, self._rows(), self._figures(), versions=versions)

    async def _round(self, ground: Ground, probe: Probe, *, is_reversed: bool) -> None:
        """All loads in turn; every second round backwards, because a server that works becomes slower."""
        await set_owners(ground, self._meter, {})
        await self._beside_nothing(ground, probe)
        loads: list[int | Pace] = [*self._wrk, *self._ours]
        for load in reversed(loads) if is_reversed else loads:
            match load:
                case Pace():
                    await self._beside_sharder(ground, probe, load)
                case int():
                    await self._beside_wrk(ground, probe, load)
        self._meter.say("\n".join(one.shown() for one in self._all()))

    async def _beside_nothing(self, ground: Ground, probe: Probe) -> None:
        since = ground.clock.now()
        with self._meter.counting("nothing beside the probe", None):
            await asyncio.sleep(IDLE_S)
        self._idle.note(probe, since, ground.clock.now())

    async def _beside_wrk(self, ground: Ground, probe: Probe, count: int) -> None:
        await set_owners(ground, self._meter, {})
        options = replace(Options(), connections=count, limit_s=LONGEST_S)
        owners = owners_on(ground, ground.stand_ins.shards)
        limit = await measure_limit(ground, self._meter, options, owners, ground.stock.names)
        since, until = limit.instants[0], limit.instants[-1]
        self._wrk[count].note(probe, since, until, limit.per_s)

    async def _beside_sharder(self, ground: Ground, probe: Probe, pace: Pace) -> None:
        await set_owners(ground, self._meter, {})
        patch = MergePatch({"spec": {"pace": pace.value}})
        await ground.client.patch(CONTROLLER_RINGS, RING, patch, type=bytes)
        async with sharding(ground, Peaks(), row="neighbour") as sharder:
            run = await assign_all(ground, self._meter, sharder)
            line = f'ringleader_write_limit{{pace="{pace.value}"}}'
            self._ours[pace].allowed.append(await sharder.running.metric(line) or 0.0)
        since, until = run.changes[0].at, run.changes[-1].at
        self._ours[pace].note(probe, since, until, run.per_s_while_writing)

    def _all(self) -> list[Beside]:
        return [self._idle, *self._wrk.values(), *self._ours.values()]

    def _rows(self) -> list[Row]:
        return [Row(key=one.name, details={**one.details(), "ours": one.is_ours}) for one in self._all()]

    def _figures(self) -> list[Figure]:
        best = max(one.rate for one in self._wrk.values())
        curve = [(one.worst_p99, one.rate) for one in self._wrk.values()]
        found: dict[str, Figure] = {}
        for pace, ours in self._ours.items():
            name = pace.value.lower()
            ratios = {
                "p50": max(ours.p50(verb) / self._idle.p50(verb) for verb in ours.p50_ms),
                "p99": max(ours.p99(verb) / self._idle.p99(verb) for verb in ours.p99_ms),
            }
            for key, ratio in ratios.items():
                if f"{name}-{key}" in GOALS:
                    found[f"{name}-{key}"] = GOALS[f"{name}-{key}"].figure(
                        f"{name}-{key}", ratio, ours.shown()
                    )
            found[f"{name}-rate"] = GOALS[f"{name}-rate"].figure(
                f"{name}-rate", 100 * ours.rate / best, f"{ours.rate:,.0f}/s of {best:,.0f}/s"
            )
            theirs = rate_at(ours.worst_p99, curve)
            found[f"{name}-curve"] = GOALS[f"{name}-curve"].figure(
                f"{name}-curve",
                100 * ours.rate / theirs,
                f"{ours.rate:,.0f}/s of {theirs:,.0f}/s at {ours.worst_p99:.0f} ms",
            )
        return [found[key] for key in GOALS if key in found]


def rate_at(p99_ms: float, curve: Sequence[tuple[float, float]]) -> float:
    """The rate of a load generator at *p99_ms* of the probe, between the measured points of (p99, rate).

    A point that is slower than one with a lower p99 counts as that one. Outside the points: the nearest one's rate.
    """
    points = sorted(curve)
    rates = list(accumulate((rate for _, rate in points), max))
    waits = [wait for wait, _ in points]
    if p99_ms <= waits[0]:
        return rates[0]
    for (before, lower), (after, upper) in zip(
        zip(waits, rates, strict=True), zip(waits[1:], rates[1:], strict=True), strict=False
    ):
        if p99_ms <= after:
            return lower + (upper - lower) * (p99_ms - before) / (after - before)
    return rates[-1]


def _panel(document: Document) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        for row in document.rows:
            p99_ms = max(float(str(row.details[f"{verb}_p99_ms"])) for verb in ("GET", "PATCH"))
            rate = float(str(row.details["per_s"]))
            colour = OURS if row.details["ours"] else THEIRS
            axes.scatter([p99_ms], [rate], color=colour, s=36)
            axes.annotate(row.key, (p99_ms, rate), xytext=(5, 4), textcoords="offset points", fontsize=8)
        axes.set(
            title="Label patches per second, and what another client waits for its answers",
            xlabel="p99 of the other client, ms",
            ylabel="patches per second",
            xscale="log",
        )
        axes.set_ylim(bottom=0)

    return draw


if __name__ == "__main__":
    sys.exit(run_benchmark(bench_neighbour, module="benchmarks.neighbour"))
