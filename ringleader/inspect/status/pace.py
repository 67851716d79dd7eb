"""How quickly a ring comes to rest, and how long it will take: from what was still to do at several looks. Pure.

Owns the estimate; `status` looks and shows it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ringleader.cluster.picture import RingPicture

LOOKS: Final = 8
"""A pace is that of the last looks: at two seconds each a quarter of a minute."""


@dataclass(slots=True)
class ProgressPace:
    """What was to do in one ring, look by look; the last *looks* count."""

    looks: int = LOOKS
    _looks: deque[tuple[float, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._looks = deque(maxlen=self.looks)

    def look(self, at: float, to_do: int) -> None:
        """At *at* (seconds of a monotonic clock) *to_do* objects were not at their place."""
        if self._looks and to_do > self._looks[-1][1]:
            self._looks.clear()  # something changed: what was measured before it says nothing about what comes
        elif self._looks and self._looks[0][1] == self._looks[-1][1] > to_do:
            while len(self._looks) > 1:  # it begins to move: the time that it settled is no part of its pace
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


class Paces:
    """The pace of each ring."""

    def __init__(self) -> None:
        self._paces: dict[str, ProgressPace] = {}

    def begin(self, shown: RingPicture, at: float) -> float:
        """The ring as it was at *at*, which is returned, before anything is paced."""
        self._paces[shown.name] = ProgressPace()
        self._paces[shown.name].look(at, shown.to_do)
        return at

    def paced(self, shown: RingPicture, at: float) -> RingPicture:
        """*shown* as it was seen at *at*, with its pace and what is left."""
        pace = self._paces.setdefault(shown.name, ProgressPace())
        pace.look(at, shown.to_do)
        return msgspec.structs.replace(shown, rate_per_second=pace.per_s, seconds_left=pace.left_s)
