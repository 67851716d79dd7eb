"""What a run leaves behind: tables, one JSON document, one picture. Decides nothing. Called by `__main__`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.table import Table

from loadtest.measuring.goals import Figure
from loadtest.measuring.machine import Machine
from loadtest.measuring.rows import Row
from loadtest.measuring.table import figures_table

_OURS, _THEIRS, _OTHER = "#0072B2", "#E69F00", "#009E73"  # Okabe-Ito: told apart by all
_PEERS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "start_s": ("start, s", "{:.2f}".format),
    "peak_rss_mb": ("peak RSS, MB", "{:,.0f}".format),
    "first_reconciles_per_s": ("first reconciles/s", "{:,.0f}".format),
    "first_reconciles_per_core_s": ("of a core", "{:,.0f}".format),
}


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

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)


def tables(document: Document) -> list[Table]:
    """The figures beside their goals; all contestants side by side, if they were measured."""
    cores = document.machine.cores
    title = f"{document.objects:,} objects, {document.plane} control plane, {cores} cores"
    foreign = document.foreign_cores
    found = [figures_table(document.figures, title=title, foreign_cores=foreign, cores=cores)]
    contestants = _contestants(document)
    return [*found, _side_by_side(contestants)] if contestants else found


def _contestants(document: Document) -> Mapping[str, Mapping[str, Any]]:
    row = document.row("start")
    found = row.details.get("contestants") if row else None
    return found if isinstance(found, Mapping) else {}


def _side_by_side(contestants: Mapping[str, Mapping[str, Any]]) -> Table:
    shown = Table(title="from the start of the process until every object was reconciled once")
    shown.add_column("")
    for heading, _ in _PEERS.values():
        shown.add_column(heading, justify="right")
    shown.add_column("left out, because", overflow="fold")
    for known in contestants.values():
        cells = [form(known[key]) if key in known else "-" for key, (_, form) in _PEERS.items()]
        shown.add_row(known["name"], *cells, known.get("left_out", ""))
    return shown


# -- picture ------------------------------------------------------------------------------------------------


def draw(document: Document, path: Path) -> bool:
    """A picture with a panel for each row that has one to show; false if none has."""
    panels = [panel for panel in (_start_panel, _event_panel, _write_panel) if panel(document, None)]
    if not panels:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        len(panels), 1, figsize=(10, 3.4 * len(panels)), squeeze=False, layout="constrained"
    )
    for panel, axes in zip(panels, all_axes[:, 0], strict=True):
        panel(document, axes)
        axes.grid(alpha=0.25)
    figure.suptitle(f"{document.objects:,} objects, {document.machine.cores} cores, {document.started_at}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _start_panel(document: Document, axes: Any) -> bool:
    """Time and memory of each contestant, and the plain LIST as a line."""
    shown = {key: known for key, known in _contestants(document).items() if "start_s" in known}
    if axes is None or not shown:
        return bool(shown)
    names = [str(known["name"]) for known in shown.values()]
    colours = [_OURS if key.startswith("ours") else _THEIRS for key in shown]
    bars = axes.barh(names, [known["start_s"] for known in shown.values()], color=colours)
    axes.bar_label(bars, [f" {known['peak_rss_mb']:,.0f} MB" for known in shown.values()], fontsize=8)
    row = document.row("start")
    lists_s = row.details.get("list_s") if row else None
    if isinstance(lists_s, list) and lists_s:
        axes.axvline(sum(lists_s) / len(lists_s), color=_OTHER, linewidth=1, label="plain LIST")
        axes.legend(fontsize=8, frameon=False)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title="start until every object was reconciled once, and peak RSS", xlabel="seconds")
    return True


def _event_panel(document: Document, axes: Any) -> bool:
    """How the waits from event to reconcile are distributed."""
    row = document.row("event")
    if axes is None or row is None or not row.details:
        return bool(row and row.details)
    for key, colour, label in (("stub_ms", _OURS, "stub server"), ("real_ms", _THEIRS, "control plane")):
        waits = row.details.get(key)
        if isinstance(waits, list) and waits:
            ordered = sorted(waits)
            shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
            axes.plot(ordered, shares, color=colour, label=label)
    axes.set(title="event to begin of reconcile", xlabel="milliseconds", ylabel="share that took no longer")
    axes.legend(fontsize=8, frameon=False)
    return True


def _write_panel(document: Document, axes: Any) -> bool:
    """Status writes over time, ours and wrk's."""
    row = document.row("write")
    if axes is None or row is None or not row.series:
        return bool(row and row.series)
    for series in row.series:
        colour = _THEIRS if series.name.startswith("wrk") else _OURS
        seconds = [(index + 0.5) * series.step_s for index in range(len(series.per_s))]
        axes.plot(seconds, series.per_s, color=colour, label=series.name, linewidth=1.2)
    axes.set(title="status writes", xlabel="seconds", ylabel="writes per second")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False, ncols=3)
    return True
