"""Goes through the chosen rows on one control plane, and what a failed row means."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from benchmarks.measuring.document import Beginning, Document
from benchmarks.measuring.failures import told
from benchmarks.measuring.goals import Figure
from benchmarks.measuring.machine import read_versions
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.runtime import contestants
from benchmarks.runtime.contestants import Contestant
from benchmarks.runtime.events import measure_events
from benchmarks.runtime.goals import GOALS, figure
from benchmarks.runtime.ground import Ground, open_ground
from benchmarks.runtime.rates import measure_rates
from benchmarks.runtime.renewals import measure_renewals
from benchmarks.runtime.rows import LINES, Options
from benchmarks.runtime.starting import measure_stall, measure_start
from benchmarks.runtime.writing import measure_writes

MODULE: Final = "benchmarks.runtime"


async def run(
    options: Options,
    directory: Path,
    meter: Meter,
    go: Sequence[Contestant],
    save: Callable[[Document], object],
) -> Document:
    """Measure what *options* asks for, the peers in *go* among it; *save* gets what is known after each row.

    Raises: BinariesMissing of the control plane, and what makes every row impossible.
    """
    began = Beginning(module=MODULE, is_real=options.is_real, objects=options.objects)
    async with open_ground(
        directory, is_real=options.is_real, objects=options.objects, lease_s=options.lease_s
    ) as ground:
        versions = await read_versions(ground.plane, ground.client, *_installed("kopf", "kubernetes"))
        versions["controller-runtime"] = contestants.go_version()

        def document() -> Document:
            return began.document(Document, bench.rows, bench.figures(), versions=versions)

        bench = Bench(ground, meter, options, go, on_row=lambda: save(document()))
        await bench.make_objects()
        await bench.measure()
        return document()


def _installed(*packages: str) -> list[str]:
    known = {package.metadata["Name"].lower() for package in metadata.distributions()}
    return [package for package in packages if package in known]


class Bench:
    """One run over one ground."""

    def __init__(
        self,
        ground: Ground,
        meter: Meter,
        options: Options,
        go: Sequence[Contestant],
        *,
        on_row: Callable[[], object],
    ) -> None:
        self._ground = ground
        self._meter = meter
        self._options = options
        self._go = go
        self._on_row = on_row
        self.rows: list[Row] = []

    def figures(self) -> list[Figure]:
        """Every line of the table that was asked for, in its order."""
        found = {one.key: one for row in self.rows for one in row.figures}
        return [found[key] for key in GOALS if key in found]

    async def make_objects(self) -> None:
        with self._meter.counting("creating the objects", self._options.objects) as tick:
            await self._ground.stock.set({}, tick)

    async def measure(self) -> None:
        """All chosen rows. The objects are as they were made before each, but for the last."""
        ground, meter, options = self._ground, self._meter, self._options
        kopf = contestants.kopf()
        everybody = [*contestants.our_forms(), *self._go, kopf, contestants.kubernetes_informer()]
        measures: dict[str, Callable[[], Awaitable[Row]]] = {
            "start": lambda: measure_start(ground, meter, options, everybody),
            "rate": lambda: measure_rates(ground, meter, options, kopf),
            "event": lambda: measure_events(ground, meter, options),
            "stall": lambda: measure_stall(ground, meter, options),
            "write": lambda: measure_writes(ground, meter, options),
            "lease": lambda: measure_renewals(ground, meter, options),
        }
        for key in options.rows:
            await self._row(key, measures[key])

    async def _row(self, key: str, measure: Callable[[], Awaitable[Row]]) -> None:
        """Measure the row *key*. A failure of what is measured becomes lines that say so; a fault of ours goes on."""
        began = time.monotonic()
        try:
            row = await measure()
        except Exception as error:
            problem = told(error)
            if problem is None:
                raise
            self._meter.say(f"{key}: not measured: {problem}")
            row = Row(key=key, figures=[figure(line, None, problem) for line in LINES[key]], problem=problem)
        row.took_s = round(time.monotonic() - began, 1)
        self.rows.append(row)
        for one in row.figures if not row.problem else ():
            wanted = f" ({one.goal})" if str(one.goal) else ""
            self._meter.say(f"{one.what}: {one.shown}{wanted}: {one.verdict.value}; {one.how}")
        self._on_row()
