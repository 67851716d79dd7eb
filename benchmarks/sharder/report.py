"""What a run leaves behind: its document, and a picture of its rates. Decides nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measuring.document import Document as Measured
from benchmarks.measuring.document import draw_rates

_DRAWN: Final = {"assign": "first assignment", "takeover": "take-over", "join": "join of a 4th shard"}


class Document(Measured, kw_only=True):
    """One run."""

    peak_rss_mb: dict[str, float]


def draw(document: Document, path: Path) -> bool:
    """Rates over time of the rows that have some; false if none has."""
    panels = [
        partial(draw_rates, row=row, title=_DRAWN[row.key], unit="objects")
        for row in document.rows
        if row.series and row.key in _DRAWN
    ]
    return document.draw(panels, path)
