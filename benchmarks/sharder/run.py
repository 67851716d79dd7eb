"""Goes through the chosen rows on one control plane: who needs which fleet, and what a failed row means.

A row that fails is told in its lines of the table, and the next one begins from a state of its own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.measuring.document import Beginning
from benchmarks.measuring.failures import told
from benchmarks.measuring.goals import Figure
from benchmarks.measuring.limit import Limit
from benchmarks.measuring.machine import read_versions
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.sharder.failures import measure_leader
from benchmarks.sharder.fleet import owners_on, replicas_of, sharding
from benchmarks.sharder.goals import GOALS, figure
from benchmarks.sharder.ground import Ground, forget_shards, open_ground
from benchmarks.sharder.guarded import measure_guard
from benchmarks.sharder.latency import measure_new_objects
from benchmarks.sharder.limit import limit_names, measure_limit
from benchmarks.sharder.replicas import Join, join_row, measure_restart, measure_term, own_all, watch_join
from benchmarks.sharder.report import Document
from benchmarks.sharder.resting import measure_cpu, measure_rest
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import measure_assignment, measure_takeover, set_owners

LINES: Final = {
    "assign": ("assign",),
    "guard": ("guard",),
    "new": ("new-p50", "new-p99"),
    "leader": ("leader-kill", "leader-term"),
    "cpu": ("cpu",),
    "takeover": ("takeover",),
    "rest": ("rest",),
    "join": ("join", "join-moves", "join-in-flight"),
    "term": ("term",),
    "restart": ("restart",),
}
"""The lines of the table that each row fills."""
PEAK_OF: Final = ("assign", "takeover", "join", "new")
"""Rows whose peak memory is judged: those above it in the table of goals."""


async def run(
    options: Options, directory: Path, meter: Meter, save: Callable[[Document], object]
) -> Document:
    """Measure what *options* asks for; *save* gets what is known after each row.

    Raises: BinariesMissing, and what makes every row impossible.
    """
    began = Beginning(module="benchmarks.sharder", is_real=options.is_real, objects=options.objects)
    async with open_ground(
        directory,
        is_real=options.is_real,
        objects=options.objects,
        lease_s=options.lease_s,
    ) as ground:
        versions = await read_versions(ground.plane, ground.client)

        def document() -> Document:
            peaks = {row: round(mb, 1) for row, mb in bench.peaks.by_row.items()}
            return began.document(Document, bench.rows, bench.figures(), versions=versions, peak_rss_mb=peaks)

        bench = Bench(ground, meter, options, on_row=lambda: save(document()))
        await bench.make_objects()
        await bench.with_stand_ins()
        await bench.with_replicas()
        return document()


class Bench:
    """One run over one ground."""

    def __init__(
        self, ground: Ground, meter: Meter, options: Options, *, on_row: Callable[[], object]
    ) -> None:
        self._ground = ground
        self._meter = meter
        self._options = options
        self._on_row = on_row
        self.rows: list[Row] = []
        self.peaks = Peaks()

    def figures(self) -> list[Figure]:
        """Every line of the table that was asked for, in its order."""
        found = {one.key: one for row in self.rows for one in row.figures}
        judged = {row: mb for row, mb in self.peaks.by_row.items() if row in PEAK_OF}
        if judged:
            how = ", ".join(f"{row} {mb:.1f}" for row, mb in judged.items())
            found["peak"] = figure("peak", max(judged.values()), f"{how}; processes: {self.peaks.processes}")
        return [found[key] for key in GOALS if key in found]

    async def make_objects(self) -> None:
        """Create all objects, without owners."""
        with self._meter.counting("creating the objects", self._options.objects) as tick:
            await self._ground.stock.set({}, tick)

    async def with_stand_ins(self) -> None:
        """The rows whose shards only hold Leases."""
        ground, meter, options, peaks = self._ground, self._meter, self._options, self.peaks
        await self._row("assign", lambda: measure_assignment(ground, meter, options, peaks))
        await self._row("guard", lambda: measure_guard(ground, meter, options, peaks))
        await self._row("new", lambda: measure_new_objects(ground, meter, options, peaks))
        await self._row("leader", lambda: measure_leader(ground, meter, options, peaks))
        await self._row("cpu", lambda: measure_cpu(ground, meter, options, peaks))
        await self._row("takeover", lambda: measure_takeover(ground, meter, options, peaks))
        await self._row("rest", lambda: measure_rest(ground, meter, options, peaks))
        await forget_shards(ground)

    async def with_replicas(self) -> None:
        """The rows with real replicas: one fleet for all of them."""
        asked = [key for key in ("join", "term", "restart") if key in self._options.rows]
        if not asked:
            return
        began = time.monotonic()
        with self._told(*asked):
            limits = [await self._limit()] if "join" in asked else []
            join = await self._with_fleet()
            if join is not None:
                await forget_shards(self._ground)
                limits.append(await self._limit())
                self._add(join_row(join, limits), time.monotonic() - began)

    async def _with_fleet(self) -> Join | None:
        ground, meter = self._ground, self._meter
        join = None
        async with replicas_of(ground, 3) as replicas:
            await own_all(ground, meter, replicas)
            async with sharding(ground, self.peaks, row="join") as sharder:
                if "join" in self._options.rows:
                    join = await watch_join(ground, meter, replicas, sharder)
                await self._row("term", lambda: measure_term(ground, meter, replicas, sharder))
                await self._row("restart", lambda: measure_restart(ground, meter, replicas, sharder))
        return join

    async def _limit(self) -> Limit:
        """What wrk reaches when it gives objects without owner to shards that nobody is."""
        ground = self._ground
        names = limit_names(ground, self._options)
        await set_owners(ground, self._meter, {}, names=names)
        owners = owners_on(ground, {f"nobody-{number}": f"nobody-{number}" for number in range(3)})
        return await measure_limit(ground, self._meter, self._options, owners, names)

    async def _row(self, key: str, measure: Callable[[], Awaitable[Row]]) -> None:
        """Measure the row *key*, if it was asked for."""
        if key not in self._options.rows:
            return
        began = time.monotonic()
        with self._told(key):
            self._add(await measure(), time.monotonic() - began)

    def _add(self, row: Row, took_s: float) -> None:
        row.took_s = round(took_s, 1)
        self.rows.append(row)
        for one in row.figures:
            self._meter.say(f"{one.what}: {one.shown} ({one.goal}): {one.verdict.value}; {one.how}")
        self._on_row()

    @contextmanager
    def _told(self, *keys: str) -> Iterator[None]:
        """A failure of what is measured becomes lines of the table that say so; a fault of ours goes on."""
        try:
            yield
        except Exception as error:
            problem = told(error)
            if problem is None:
                raise
            self._meter.say(f"{', '.join(keys)}: not measured: {problem}")
            for key in keys:
                if all(row.key != key for row in self.rows):
                    lines = [figure(line, None, problem) for line in LINES[key]]
                    self.rows.append(Row(key=key, figures=lines, problem=problem))
