"""What is wanted of the runtime, figure by figure. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.measuring.goals import Figure, Goal, Wanted

_OF_LIST: Final = Goal(most=1.5, unit="x the plain LIST")
_OF_GO: Final = Goal(most=0.5, unit="x controller-runtime")
GOALS: Final[Mapping[str, Wanted]] = {
    "start-raw-list": Wanted("start until every object was reconciled, stored raw", _OF_LIST),
    "start-raw-go": Wanted("the same beside controller-runtime", _OF_GO),
    "start-compressed-list": Wanted("start until every object was reconciled, stored compressed", _OF_LIST),
    "start-compressed-go": Wanted("the same beside controller-runtime", _OF_GO),
    "rss-raw": Wanted("peak RSS, full objects stored raw", Goal(most=250, unit="MB")),
    "rss-compressed": Wanted("peak RSS, full objects stored compressed", Goal(most=120, unit="MB")),
    "metadata-go": Wanted("start, metadata only", Goal(most=1, unit="x controller-runtime")),
    "metadata-rss": Wanted("peak RSS, metadata only", Goal(most=0.25, unit="x controller-runtime")),
    "rate-raw": Wanted("no-op reconciles with a cached read, raw", Goal(least=100_000, unit="/s per core")),
    "rate-model": Wanted("no-op reconciles, model decoded", Goal(least=50_000, unit="/s per core")),
    "rate-kopf": Wanted("no-op reconciles, raw, beside kopf", Goal(least=20, unit="x kopf")),
    "event-p50": Wanted("event on the socket to begin of reconcile, p50", Goal(most=2, unit="ms")),
    "event-p99": Wanted("event on the socket to begin of reconcile, p99", Goal(most=10, unit="ms")),
    "event-real": Wanted("answer to a PATCH to begin of reconcile, p50", Goal(unit="ms")),
    "stall": Wanted("worst stall of the event loop during bulk load", Goal(most=50, unit="ms")),
    "write": Wanted("reconciles with one fenced status write", Goal(least=90, unit="% of the limit")),
    "lease": Wanted("Lease renewals late by more than a second, full load", Goal(most=0, unit="renewals")),
}


def figure(key: str, value: float | None, how: str = "") -> Figure:
    """The line *key* of the table with its *value*; None: it could not be measured, *how* says why."""
    return GOALS[key].figure(key, value, how)


def skipped(key: str, why: str) -> Figure:
    """The line *key*, which cannot be had here."""
    return GOALS[key].skipped(key, why)
