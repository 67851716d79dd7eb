"""The highest rate that keeps a service level: steps until it breaks, then bisection. Pure."""

from __future__ import annotations

import math
from typing import Final

STEP: Final = 1.3
"""Factor between the first two rates. Each next one is its square, until one rate passed and one failed."""
SMALL_STEP: Final = 1.08
"""The same where the rate to begin with is known from another number of replicas."""
LARGEST_STEP: Final = 2.0
PRECISION: Final = 0.03
"""The search ends when the lowest rate that failed is above the highest that passed by this part at most."""
TIMES: Final = 12
"""Trials at most."""
SMALLEST: Final = 0.5
"""Operations per second below which nothing is tried."""


class RateSearch:
    """Proposes rates and learns from the verdicts. A rate fails clearly or twice: one bad minute is no limit."""

    def __init__(
        self, first: float, *, step: float = STEP, precision: float = PRECISION, times: int = TIMES
    ) -> None:
        self._next = first
        self._step = step
        self._precision = precision
        self._left = times
        self._failed_once: float | None = None
        self.best = 0.0
        """Highest rate that passed; 0 while none did."""
        self.worst = math.inf
        """Lowest rate that failed for good."""

    @property
    def rate(self) -> float | None:
        """The rate to try next; None: the search is over."""
        if self._left <= 0 or self._next < SMALLEST or self.worst <= self.best * (1 + self._precision):
            return None
        return self._next

    def note(self, *, passed: bool, is_clear: bool = False) -> None:
        """The verdict on `rate`; *is_clear*: it failed by so much that another trial would tell nothing."""
        rate = self._next
        self._left -= 1
        if passed:
            self.best, self._failed_once = max(self.best, rate), None
        elif self._failed_once != rate and not is_clear:
            self._failed_once = rate
            return
        else:
            self.worst, self._failed_once = min(self.worst, rate), None
        if math.isinf(self.worst):
            self._next = self.best * self._step
        elif not self.best:
            self._next = self.worst / self._step
        else:
            self._next = math.sqrt(self.best * self.worst)
        self._step = min(self._step**2, LARGEST_STEP)

    @property
    def is_met(self) -> bool:
        """Whether the limit lies between two rates that were tried."""
        return self.best > 0 and not math.isinf(self.worst)
