"""When each user of the load acts. Pure."""

from __future__ import annotations

import math
from typing import Final

_GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Multiples of it, without their whole part, spread evenly however many they are (Knuth, TAOCP 3, 6.4)."""
_CATCH_UP_S: Final = 5.0
"""A user that is behind by more gives up the operations that it owes."""


class Pacing:
    """The instants of one user: every *period_s*, at a part of the period that is its own.

    The instants are the clock's, not the answers': users that once waited for the same busy server would act
    together ever after. *index* counts the users of a process; *offset* (0 to 1) is the process's own.
    """

    def __init__(self, period_s: float, index: int, *, offset: float) -> None:
        self._period_s = period_s
        self._first = period_s * ((offset + index * _GOLDEN) % 1.0)
        self._due = -math.inf

    def wait_s(self, now: float) -> float:
        """Seconds until the next operation is due; 0 if it is overdue: a slow answer costs no operation."""
        if now - self._due > _CATCH_UP_S:
            self._due = self._first + math.floor((now - self._first) / self._period_s) * self._period_s
        self._due += self._period_s
        return max(0.0, self._due - now)
