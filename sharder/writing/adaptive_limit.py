"""Adaptive limit on label patches under way at the API server. Pure: time is passed in.

The *knee* is the number of writes that the server carries without queueing them. By Little's law it is the rate of
answers times what a write takes alone; both are measured all the time. A pace allows a multiple of the knee: a higher
one writes more per second, and other clients of the server wait longer (docs/benchmarks.md has both for each pace).

A few writes go out one at a time whenever the limit has held writes back for some seconds: else our own queue would
pass for the server's usual latency. Refusals (429, 5xx, no answer) set a ceiling at half of what was allowed; the
ceiling rises by one for each round of answers.
"""

from __future__ import annotations

import math
import statistics
from typing import Final, NamedTuple

from sharder.ringspec.spec import Pace

MOST: Final = 64
"""Writes under way at any pace: what the chart's priority level queues without a refusal (docs/operate.md)."""
MEASURE_EVERY_S: Final = 5.0
MEASURED: Final = 12
"""Writes, one at a time, of which the mean is what a write takes alone."""
OUTLIER: Final = 3.0
"""A write that took longer than so many times their median counts as that: the server collected garbage."""
MEASURE_PART: Final = 0.03
"""Part of the time that may be spent on them: on a slow server they come more rarely."""
LONGEST_MEASURE_S: Final = 1.0
"""A measurement ends then with what it has."""
MEMORY: Final = 0.5
"""Weight of what was known before, in the mean of measurements: two of them are half forgotten after two more."""
ROUND_AT_LEAST: Final = 16
"""Answers in a round, however low the limit is."""
STEP: Final = 0.3
"""Weight of a round in the knee."""


class Allowance(NamedTuple):
    """Writes under way: *times* the knee, and *more*."""

    times: float
    more: float


ALLOWANCES: Final = {
    Pace.BACKGROUND: Allowance(1.05, 0.5),
    Pace.NORMAL: Allowance(1.8, 0.5),
    Pace.URGENT: Allowance(2.5, 1.0),
}


class AdaptiveLimit:
    """The limit of one API server, between 1 and *most* for each pace."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._knee = 1.0
        self._ceiling = float(most)
        self._cut_at = -math.inf
        self._round = _Round()
        self._alone = _Alone()

    def allowed(self, pace: Pace) -> int:
        """Writes that may be under way when one of *pace* is to begin."""
        if self._alone.is_measuring:
            return 1
        return max(1, int(min(self._wanted(pace), self._ceiling) + 0.5))

    def answered(self, *, at: float, took_s: float, in_flight: int, held_back: bool) -> None:
        """A write was answered.

        *in_flight*: writes under way before the answer came, this one included; *held_back*: others wait for the limit.
        """
        self._alone.note(at=at, took_s=took_s, held_back=held_back)
        if self._alone.is_measuring or at - took_s < max(self._cut_at, self._alone.measured_at):
            return  # measured under another limit than the present one
        self._round.note(took_s, in_flight=in_flight, held_back=held_back)
        if self._round.answers >= max(ROUND_AT_LEAST, in_flight):
            self._end_round()

    def refused(self, *, at: float, took_s: float) -> None:
        """The server refused a write, failed, or did not answer in time: half of what was allowed is enough."""
        if at - took_s < self._cut_at:
            return  # sent before the last cut: the same refusal once more
        self._ceiling = max(1.0, min(self._ceiling, self._wanted(Pace.URGENT)) / 2)
        self._cut_at = at
        self._round = _Round()

    def _wanted(self, pace: Pace) -> float:
        allowance = ALLOWANCES[pace]
        return allowance.times * self._knee + allowance.more

    def _end_round(self) -> None:
        ended, self._round = self._round, _Round()
        if not ended.held_back:
            return  # fewer than allowed were wanted: nothing is learned about more
        self._ceiling = min(self._ceiling + 1, self._most)
        carried = ended.in_flight * min(1.0, self._alone.latency_s / ended.mean_s)
        self._knee = max(1.0, self._knee + STEP * (carried - self._knee))


class _Round:
    """Answers of one limit, and its effect on the latency."""

    def __init__(self) -> None:
        self.answers = 0
        self.held_back = False
        self._sum_s = 0.0
        self._sum_in_flight = 0

    def note(self, took_s: float, *, in_flight: int, held_back: bool) -> None:
        self.answers += 1
        self.held_back |= held_back
        self._sum_s += took_s
        self._sum_in_flight += in_flight

    @property
    def mean_s(self) -> float:
        return self._sum_s / self.answers

    @property
    def in_flight(self) -> float:
        """Mean number of writes under way."""
        return self._sum_in_flight / self.answers


class _Alone:
    """Latency of a write while no other of ours is under way, measured from time to time."""

    def __init__(self) -> None:
        self.is_measuring = False
        self.measured_at = -math.inf
        """Time of the end of the last measurement."""
        self.latency_s = math.inf
        """Infinite before the first measurement."""
        self._began_at = 0.0
        self._next_at = -math.inf
        self._found: list[float] = []

    def note(self, *, at: float, took_s: float, held_back: bool) -> None:
        """A write was answered; the next measurement begins when it is due and the limit is in use."""
        if self.is_measuring:
            if at - took_s >= self._began_at:
                self._found.append(took_s)
            if self._found and (len(self._found) >= MEASURED or at - self._began_at >= LONGEST_MEASURE_S):
                self._end(at)
        elif held_back and at >= self._next_at:
            self.is_measuring, self._began_at, self._found = True, at, []

    def _end(self, at: float) -> None:
        longest_s = OUTLIER * statistics.median(self._found)
        found_s = statistics.fmean(min(took_s, longest_s) for took_s in self._found)
        known_s = found_s if math.isinf(self.latency_s) else self.latency_s
        self.latency_s = MEMORY * known_s + (1 - MEMORY) * found_s
        self.is_measuring, self.measured_at = False, at
        self._next_at = at + max(MEASURE_EVERY_S, (at - self._began_at) / MEASURE_PART)
