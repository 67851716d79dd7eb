"""What is wanted of a sharder, figure by figure. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.measuring.goals import Figure, Goal, Wanted

POLITE: Final = 60
"""Percent of the rate of a load generator with 64 connections that the pace `Background` is to reach."""
GOALS: Final[Mapping[str, Wanted]] = {
    "assign": Wanted("first assignment of all objects", Goal(least=POLITE, unit="% of the limit")),
    "guard": Wanted(
        "first assignment: lost by the chart's admission policies", Goal(most=2, unit="% of the rate")
    ),
    "takeover": Wanted(
        "take-over of a dead shard's objects, from the take to the last write",
        Goal(least=75, unit="% of the limit"),
    ),
    "join": Wanted(
        "join of a 4th shard: objects passed on", Goal(least=0.75 * POLITE, unit="% of half the limit")
    ),
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
    return GOALS[key].figure(key, value, how)
