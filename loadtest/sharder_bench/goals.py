"""What is wanted of a sharder, figure by figure, and whether a measured value reaches it. Pure.

Called by the rows, which fill in values, and by `report`, which prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class Verdict(StrEnum):
    MET = "met"
    MISSED = "MISSED"
    NOT_MEASURED = "not measured"


class Goal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At least *least* or at most *most*, in *unit*."""

    unit: str
    least: float | None = None
    most: float | None = None

    def judge(self, value: float | None) -> Verdict:
        """Whether *value* reaches the goal; a value that is not a number reaches none."""
        if value is None:
            return Verdict.NOT_MEASURED
        is_enough = self.least is None or value >= self.least
        is_little = self.most is None or value <= self.most
        return Verdict.MET if is_enough and is_little else Verdict.MISSED

    def __str__(self) -> str:
        if self.least is not None:
            return f">= {self.least:g} {self.unit}"
        return f"<= {self.most:g} {self.unit}"


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
        return "-" if self.value is None else f"{round_off(self.value):g} {self.goal.unit}"


class Wanted(msgspec.Struct, frozen=True):
    """A line of the table before it is measured."""

    what: str
    goal: Goal


OF_LIMIT: Final = Goal(least=95, unit="% of the limit")
GOALS: Final[Mapping[str, Wanted]] = {
    "assign": Wanted("first assignment of all objects", OF_LIMIT),
    "takeover": Wanted("take-over of a dead shard's objects, from the take to the last write", OF_LIMIT),
    "join": Wanted("join of a 4th shard: objects passed on", Goal(least=95, unit="% of half the limit")),
    "join-moves": Wanted("join: objects moved, of the ideal", Goal(most=1.02, unit="x")),
    "join-in-flight": Wanted("join: handoffs in flight at most", Goal(most=1000, unit="objects")),
    "new-p50": Wanted("one new object on an idle ring, p50", Goal(most=15, unit="ms")),
    "new-p99": Wanted("one new object on an idle ring, p99", Goal(most=60, unit="ms")),
    "peak": Wanted("peak RSS of the sharder's processes", Goal(most=64, unit="MB")),
    "rest": Wanted("RSS at rest, largest to smallest number of objects", Goal(most=10, unit="% apart")),
    "cpu": Wanted("CPU at rest, while others update", Goal(most=2, unit="% of a core")),
    "leader-kill": Wanted("kill -9 of the leader to the next write", Goal(most=17, unit="s")),
    "leader-term": Wanted("SIGTERM of the leader to the next write", Goal(most=1, unit="s")),
    "term": Wanted("SIGTERM of a replica to the first reassignment", Goal(most=0.3, unit="s")),
    "restart": Wanted("container restarted to its objects being worked on", Goal(most=3, unit="s")),
}


def figure(key: str, value: float | None, how: str = "") -> Figure:
    """The line *key* of the table with its *value*; None: it could not be measured, *how* says why."""
    wanted = GOALS[key]
    return Figure(
        key=key, what=wanted.what, value=value, goal=wanted.goal, verdict=wanted.goal.judge(value), how=how
    )


def round_off(value: float) -> float:
    """*value* to three significant digits, and whole above 100."""
    return float(f"{value:.3g}") if abs(value) < 100 else float(round(value))
