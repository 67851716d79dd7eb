"""What a run leaves behind: tables, one JSON document, one picture. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from benchmarks.measuring.document import OTHER, OURS, THEIRS, Document, draw_rates

_PEERS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "start_s": ("start, s", "{:.2f}".format),
    "peak_rss_mb": ("peak RSS, MB", "{:,.0f}".format),
    "first_reconciles_per_s": ("first reconciles/s", "{:,.0f}".format),
    "first_reconciles_per_core_s": ("of a core", "{:,.0f}".format),
}


def tables(document: Document) -> list[Table]:
    """The figures beside their goals; all contestants side by side, if they were measured."""
    found = [document.table()]
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
    shown = [panel for panel in (_start_panel, _event_panel, _write_panel) if panel(document, None)]
    return document.draw([partial(panel, document) for panel in shown], path)


def _start_panel(document: Document, axes: Any) -> bool:
    """Time and memory of each contestant, and the plain LIST as a line."""
    shown = {key: known for key, known in _contestants(document).items() if "start_s" in known}
    if axes is None or not shown:
        return bool(shown)
    names = [str(known["name"]) for known in shown.values()]
    colours = [OURS if key.startswith("ours") else THEIRS for key in shown]
    bars = axes.barh(names, [known["start_s"] for known in shown.values()], color=colours)
    axes.bar_label(bars, [f" {known['peak_rss_mb']:,.0f} MB" for known in shown.values()], fontsize=8)
    row = document.row("start")
    lists_s = row.details.get("list_s") if row else None
    if isinstance(lists_s, list) and lists_s:
        axes.axvline(sum(lists_s) / len(lists_s), color=OTHER, linewidth=1, label="plain LIST")
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
    for key, colour, label in (("stub_ms", OURS, "stub server"), ("real_ms", THEIRS, "control plane")):
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
    draw_rates(axes, row, title="status writes", unit="writes")
    return True
