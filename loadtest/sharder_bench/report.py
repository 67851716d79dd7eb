"""What a run leaves behind: a table, one JSON document, one picture. Decides nothing. Called by `__main__`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from loadtest.measuring.goals import Figure
from loadtest.measuring.machine import Machine
from loadtest.measuring.rows import Row
from loadtest.measuring.table import figures_table

_OURS, _THEIRS, _OTHER = "#0072B2", "#E69F00", "#009E73"  # Okabe-Ito: told apart by all
_DRAWN: Final = {"assign": "first assignment", "takeover": "take-over", "join": "join of a 4th shard"}


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
    peak_rss_mb: dict[str, float]
    figures: list[Figure]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


def table(document: Document) -> Table:
    """The figures beside their goals."""
    cores = document.machine.cores
    title = f"{document.objects:,} objects, {document.plane} control plane, {cores} cores"
    return figures_table(document.figures, title=title, foreign_cores=document.foreign_cores, cores=cores)


def draw(document: Document, path: Path) -> bool:
    """Rates over time of the rows that have some; false if none has."""
    rows = [row for row in document.rows if row.series and row.key in _DRAWN]
    if not rows:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        len(rows), 1, figsize=(10, 3.2 * len(rows)), squeeze=False, layout="constrained"
    )
    for row, axes in zip(rows, all_axes[:, 0], strict=True):
        for series in row.series:
            colour = _THEIRS if series.name.startswith("wrk") else _OURS
            if series.name == "drain labels":
                colour = _OTHER
            seconds = [(index + 0.5) * series.step_s for index in range(len(series.per_s))]
            axes.plot(seconds, series.per_s, color=colour, label=series.name, linewidth=1.2)
        axes.set(title=_DRAWN[row.key], xlabel="seconds", ylabel="objects per second")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False, ncols=3)
    figure.suptitle(f"{document.objects:,} objects, {document.machine.cores} cores, {document.started_at}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
