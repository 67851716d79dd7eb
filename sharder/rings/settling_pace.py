"""Rate at which objects come to their places, and time left, from the number still to do at the last looks. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

LOOKS: Final = 8
"""Looks that make up a pace."""


class SettlingPace:
    """Numbers of objects that were still to do at the last *looks*."""

    def __init__(self, *, looks: int = LOOKS) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=looks)

    def look(self, at: float, to_do: int) -> None:
        """At *at* (seconds of a monotonic clock) *to_do* objects were not at their place."""
        if self._looks and to_do > self._looks[-1][1]:
            self._looks.clear()  # something changed: the looks before say nothing about what comes
        elif self._looks and self._looks[0][1] == self._looks[-1][1] > to_do:
            while len(self._looks) > 1:  # it begins to move: the settle window is no part of its pace
                self._looks.popleft()
        self._looks.append((at, to_do))

    @property
    def per_s(self) -> float | None:
        """Objects a second that came to their places; None before the second look."""
        if len(self._looks) < 2:
            return None
        (began, before), (ended, now) = self._looks[0], self._looks[-1]
        return (before - now) / (ended - began) if ended > began else None

    @property
    def left_s(self) -> float | None:
        """Seconds until nothing is to do at this pace; None if it is not known, or nothing moves."""
        rate = self.per_s
        if not self._looks or self._looks[-1][1] == 0:
            return 0.0
        return self._looks[-1][1] / rate if rate else None
