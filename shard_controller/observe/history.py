"""History of the last reconciles, for people who inspect a running process. Pure.

Owns a ring buffer of the last outcomes and the error of each failing object. Both are bounded: a reconcile that
succeeds costs one entry of the ring buffer and nothing that grows.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

from kubeio.clock import Clock
from kubeio.models import Meta
from shard_controller.declare.request import Request
from shard_controller.observe.observer import Observer, Outcome

LAST = 1024
"""Outcomes that are kept."""
FAILING = 4096
"""Objects whose error is kept; beyond that, the one that failed longest ago is forgotten."""
LONGEST_MESSAGE = 500


class ReconcileRecord(NamedTuple):
    """One reconcile that is over, *at* a time of `time.perf_counter`."""

    request: Request
    outcome: Outcome
    at: float
    took_s: float


class ReconcileFailure(NamedTuple):
    """Error of an object's last failed reconcile. *message* is cut to `LONGEST_MESSAGE` characters."""

    type: str
    message: str
    at: float


class History(Observer):
    """Cost: `ended` and `recovered` O(1), a fraction of a microsecond; the rest is for people."""

    def __init__(self, clock: Clock, *, last: int = LAST, failing: int = FAILING) -> None:
        self._clock = clock
        # plain tuples: once per reconcile, a named one costs several times as much
        self._ended: deque[tuple[Request, Outcome, float, float]] = deque(maxlen=last)
        self._failing: OrderedDict[Request, ReconcileFailure] = OrderedDict()
        self._most_failing = failing

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        self._ended.append((request, outcome, at, took_s))
        if error is not None:
            self.failed(request, error)
        elif self._failing and outcome in ("done", "requeue"):
            self.recovered(request)

    def unfit(self, request: Request, meta: Meta, error: Exception) -> None:
        self.failed(request, error)

    def failed(self, request: Request, error: BaseException) -> None:
        """The attempt at *request* ended with *error*: remembered until `recovered`."""
        message = str(error)
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        self._failing[request] = ReconcileFailure(type(error).__name__, message, self._clock.now())
        self._failing.move_to_end(request)
        if len(self._failing) > self._most_failing:
            self._failing.popitem(last=False)

    def recovered(self, request: Request) -> None:
        """*request* went well, or is none of ours any more."""
        if self._failing:
            self._failing.pop(request, None)

    def failure(self, request: Request) -> ReconcileFailure | None:
        return self._failing.get(request)

    def last(self, request: Request) -> ReconcileRecord | None:
        """The newest outcome of *request* that is still in the ring. Cost: O(ring)."""
        return next((ended for ended in self.newest() if ended.request == request), None)

    def newest(self) -> Iterator[ReconcileRecord]:
        """Outcomes, the newest first."""
        return (ReconcileRecord(*raw) for raw in reversed(self._ended))

    def failing(self) -> Iterator[tuple[Request, ReconcileFailure]]:
        """Objects that fail, the one that failed last first."""
        return reversed(self._failing.items())
