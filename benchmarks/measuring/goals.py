"""Figures beside what is wanted of them, and whether they reach it. Pure.

Each benchmark has a table of goals of its own; its rows fill in values, `table` prints them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    MET = "met"
    MISSED = "MISSED"
    NOT_MEASURED = "not measured"
    SKIPPED = "skipped"
    REPORTED = "reported"


class Goal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At least *least* or at most *most*, in *unit*; with neither, nothing is wanted: the value is reported."""

    unit: str
    least: float | None = None
    most: float | None = None

    def judge(self, value: float | None) -> Verdict:
        """Whether *value* reaches the goal; a value that is not a number reaches none."""
        if value is None:
            return Verdict.NOT_MEASURED
        if self.least is None and self.most is None:
            return Verdict.REPORTED
        is_enough = self.least is None or value >= self.least
        is_little = self.most is None or value <= self.most
        return Verdict.MET if is_enough and is_little else Verdict.MISSED

    def __str__(self) -> str:
        if self.least is not None:
            return f">= {_number(self.least)} {self.unit}"
        return f"<= {_number(self.most)} {self.unit}" if self.most is not None else ""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: *what* was measured, its *value*, and *how* it came about in a few words."""

    key: str
    what: str
    value: float | None
    goal: Goal
    verdict: Verdict
    how: str = ""

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return "-" if self.value is None else f"{_number(round_off(self.value))} {self.goal.unit}"


class Wanted(msgspec.Struct, frozen=True):
    """A line of the table before it is measured."""

    what: str
    goal: Goal

    def figure(self, key: str, value: float | None, how: str = "") -> Figure:
        """The line *key* with its *value*; None: it could not be measured, *how* says why."""
        verdict = self.goal.judge(value)
        return Figure(key=key, what=self.what, value=value, goal=self.goal, verdict=verdict, how=how)

    def skipped(self, key: str, why: str) -> Figure:
        """The line *key* that is left out here, for a reason that is nobody's fault."""
        return Figure(key=key, what=self.what, value=None, goal=self.goal, verdict=Verdict.SKIPPED, how=why)


def round_off(value: float) -> float:
    """*value* to three significant digits, and whole above 100."""
    return float(f"{value:.3g}") if abs(value) < 100 else float(round(value))


def _number(value: float) -> str:
    """Without an exponent, thousands apart from 10,000 on."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:g}"
