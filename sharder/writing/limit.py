"""How many writes the API server takes at once, found from its answers. Pure: time is passed in.

Two things push the limit back: latency (by how far it is above what an unhurried write takes) and refusals (429,
5xx, no answer at all). Answers in time push it up, as long as it is the limit that holds the writes back. What an
unhurried write takes is measured anew every few seconds: when the limit has been in use all that time it is lowered
for a moment, else our own queue at the server would soon pass for its usual latency. Asked by `sharder.writing.pace`.
"""

from __future__ import annotations

import math
from typing import Final

FEW: Final = 4
"""In flight while the unhurried latency is measured; latency alone never pushes the limit lower."""
MOST: Final = 8
"""Until the limit finds the knee by itself. On two cores a stranger's GET takes 9 ms beside 4 writes under way, 14 ms
beside 8 and 47 ms beside 46 (p99: 34, 52, 143); the sharder writes 517, 546 and 590 labels a second."""
FIRST: Final = 8
PATIENCE: Final = 40.0
"""Writes may take this many times as long as unhurried ones: the more a server has queued, the more it batches."""
SOON_S: Final = 0.025
"""Latency below this is no reason to send less, however quick the server could be."""
MEASURE_EVERY_S: Final = 30.0
MEASURED_WRITES: Final = 6


class Limit:
    """The limit of one API server, between 1 and *most*."""

    def __init__(self, *, first: int = FIRST, most: int = MOST) -> None:
        self._most = most
        self._limit = float(min(first, most))
        self._rush_until = float(most)
        """Below this the limit doubles, above it goes up by one (a round each)."""
        self._cut_at = -math.inf
        self._round = _Round()
        self._unhurried = _Unhurried()

    @property
    def value(self) -> int:
        """Writes that may be under way now."""
        return min(FEW, int(self._limit)) if self._unhurried.is_measuring else int(self._limit)

    def answered(self, *, at: float, took_s: float, in_flight: int) -> None:
        """A write was answered; *in_flight* counts those under way before the answer came, this one included."""
        begun_at = at - took_s
        was_full = in_flight >= self.value
        self._unhurried.note(at=at, begun_at=begun_at, in_flight=in_flight, is_full=was_full)
        if self._unhurried.is_measuring or begun_at < self._cut_at:
            return  # tells of another limit than the present one
        self._round.note(took_s, was_full=was_full)
        if self._round.answers >= self._limit:
            self._end_round()

    def refused(self, *, at: float, took_s: float) -> None:
        """The server refused a write, failed, or did not answer in time: half of what was sent is enough."""
        if at - took_s < self._cut_at:
            return  # sent before the last cut: the same refusal once more
        self._limit = max(1.0, self._limit / 2)
        self._rush_until = self._limit
        self._cut_at = at
        self._round = _Round()

    def _end_round(self) -> None:
        ended, self._round = self._round, _Round()
        allowed_s = max(SOON_S, PATIENCE * self._unhurried.latency_s)
        if ended.mean_s > allowed_s:
            back = max(0.5, allowed_s / ended.mean_s)
            self._limit = max(min(FEW, self._limit), self._limit * back)
            self._rush_until = self._limit
        elif ended.was_full:
            step = self._limit if self._limit < self._rush_until else 1.0
            self._limit = min(self._limit + step, self._most)


class _Round:
    """As many answers as the limit lets be under way: what the limit does to the latency shows after that."""

    def __init__(self) -> None:
        self.answers = 0
        self.was_full = False
        self._sum_s = 0.0

    def note(self, took_s: float, *, was_full: bool) -> None:
        self.answers += 1
        self.was_full |= was_full
        self._sum_s += took_s

    @property
    def mean_s(self) -> float:
        return self._sum_s / self.answers


class _Unhurried:
    """What a write takes when few are under way: the least of the last two periods."""

    def __init__(self) -> None:
        self.is_measuring = False
        self._least_s = self._least_before_s = math.inf
        self._period_ends_at: float | None = None
        self._few_since: float | None = None
        self._measured = 0

    @property
    def latency_s(self) -> float:
        """Infinite before the first answer."""
        return min(self._least_s, self._least_before_s)

    def note(self, *, at: float, begun_at: float, in_flight: int, is_full: bool) -> None:
        if self._period_ends_at is None:
            self._period_ends_at = at + MEASURE_EVERY_S
        was_unhurried = self._was_unhurried(begun_at=begun_at, at=at, in_flight=in_flight)
        self._least_s = min(self._least_s, at - begun_at)
        self._measured += was_unhurried
        if self.is_measuring and self._measured >= MEASURED_WRITES:
            self.is_measuring = False
        if at >= self._period_ends_at:
            self._begin_period(at=at, must_measure=is_full and self._measured < MEASURED_WRITES)

    def _was_unhurried(self, *, begun_at: float, at: float, in_flight: int) -> bool:
        """Whether few were under way as long as this write was."""
        if in_flight > FEW:
            self._few_since = None
            return False
        if self._few_since is None:
            self._few_since = at
        return begun_at >= self._few_since

    def _begin_period(self, *, at: float, must_measure: bool) -> None:
        self._least_before_s, self._least_s = self._least_s, math.inf
        self._period_ends_at = at + MEASURE_EVERY_S
        self._measured = 0
        self.is_measuring = must_measure
