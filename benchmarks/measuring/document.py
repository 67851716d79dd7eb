"""What a run leaves behind: one JSON document with every row and figure, and a picture of panels below each other.

Decides nothing. Filled by the benchmarks' runs, shown by their reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from rich.table import Table

from benchmarks.measuring.goals import Figure
from benchmarks.measuring.machine import command_line
from benchmarks.measuring.processes import ForeignWork
from benchmarks.measuring.rows import Row, Series
from benchmarks.measuring.table import figures_table
from loadtest.machine import Machine, read_machine

OURS, THEIRS, OTHER = "#0072B2", "#E69F00", "#009E73"  # Okabe-Ito: told apart by all
Panel = Callable[[Any], object]
"""Draws into matplotlib's axes."""


class Document(msgspec.Struct, kw_only=True):
    """One run."""

    command: str
    started_at: str
    took_s: float
    plane: str
    objects: int
    machine: Machine
    foreign_cores: float
    """Cores that other work on the machine used meanwhile."""
    versions: dict[str, str]
    rows: list[Row]
    figures: list[Figure]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def save(self, out: Path) -> Path:
        """Write it into the folder *out*; where."""
        path = out / "report.json"
        path.write_bytes(self.encode())
        return path

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def table(self) -> Table:
        """The figures beside their goals."""
        cores = self.machine.cores
        title = f"{self.objects:,} objects, {self.plane} control plane, {cores} cores"
        return figures_table(self.figures, title=title, foreign_cores=self.foreign_cores, cores=cores)

    def draw(self, panels: Sequence[Panel], path: Path, *, panel_inches: float = 3.3) -> bool:
        """A picture of *panels*; false if there is none."""
        if not panels:
            return False
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot

        figure, all_axes = pyplot.subplots(
            len(panels), 1, figsize=(10, panel_inches * len(panels)), squeeze=False, layout="constrained"
        )
        for panel, axes in zip(panels, all_axes[:, 0], strict=True):
            panel(axes)
            axes.grid(alpha=0.25)
        figure.suptitle(f"{self.objects:,} objects, {self.machine.cores} cores, {self.started_at}")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        return True


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """When the run of *module* began, and on what."""

    module: str
    is_real: bool
    objects: int
    at: float = field(default_factory=time.monotonic)
    wall: datetime = field(default_factory=lambda: datetime.now(UTC))
    machine: Machine = field(default_factory=read_machine)
    foreign: ForeignWork = field(default_factory=ForeignWork)

    def document(
        self,
        kind: type[D],
        rows: Sequence[Row],
        figures: Sequence[Figure],
        *,
        versions: Mapping[str, str],
        **more: Any,
    ) -> D:
        """What is known by now; *more* are fields that *kind* has beside those of `Document`."""
        return kind(
            command=command_line(self.module),
            started_at=self.wall.strftime("%Y-%m-%d %H:%M UTC"),
            took_s=round(time.monotonic() - self.at, 1),
            plane="real" if self.is_real else "embedded",
            objects=self.objects,
            machine=self.machine,
            foreign_cores=self.foreign.cores(),
            versions=dict(versions),
            rows=list(rows),
            figures=list(figures),
            **more,
        )


_COLOURS: Final = {"drain labels": OTHER}


def draw_rates(axes: Any, row: Row, *, title: str, unit: str) -> None:
    """Rates over time; wrk's in their own colour."""
    for series in row.series:
        axes.plot(_seconds(series), series.per_s, color=_colour(series), label=series.name, linewidth=1.2)
    axes.set(title=title, xlabel="seconds", ylabel=f"{unit} per second")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False, ncols=3)


def _colour(series: Series) -> str:
    return _COLOURS.get(series.name, THEIRS if series.name.startswith("wrk") else OURS)


def _seconds(series: Series) -> list[float]:
    return [(index + 0.5) * series.step_s for index in range(len(series.per_s))]
