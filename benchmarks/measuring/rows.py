"""What a row of a benchmark gives back. No measuring here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.measuring.goals import Figure
from benchmarks.measuring.sightings import rates


class Series(msgspec.Struct, frozen=True):
    """A rate per second in each step of a stretch: for the plot."""

    name: str
    step_s: float
    per_s: list[float]


def series(name: str, instants: Sequence[float], *, since: float) -> Series:
    """How often something happened over time."""
    step_s, per_s = rates(instants, since=since)
    return Series(name, step_s, [round(rate, 1) for rate in per_s])


class Row(msgspec.Struct, kw_only=True):
    """What one row found: its lines of the table, and all that is worth keeping beside them."""

    key: str
    figures: list[Figure] = []
    details: dict[str, object] = {}
    series: list[Series] = []
    took_s: float = 0.0
    problem: str = ""
