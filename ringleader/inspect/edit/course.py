"""How far a release is: from how many objects there were, and from the counter in the ring's status. Pure.

Owns the arithmetic and the words; `release` reads the ring, `telling` shows what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ringleader.inspect.status.layout import duration
from sharder.rings.settling_pace import SettlingPace

LOOKS: Final = 60
"""A pace is that of the last minute: one look a second."""
PATIENCE_S: Final = 10.0
"""A sharder that tells how far it is does so before."""


@dataclass(slots=True)
class Course:
    """What became of *total* objects. *counter* is the sharder's when they were counted, None if there was none."""

    total: int
    counter: int | None
    began_at: float
    done: int = 0
    _pace: SettlingPace = field(default_factory=lambda: SettlingPace(looks=LOOKS))

    def look(self, at: float, counter: int | None) -> None:
        """At *at* the ring's status tells *counter*; a smaller one than before was begun anew by another sharder."""
        if counter is None:
            return
        before = self.counter or 0
        self.done += counter - before if counter >= before else counter
        self.counter = counter
        self.total = max(self.total, self.done)
        self._pace.look(at, self.total - self.done)

    @property
    def is_told(self) -> bool:
        """Whether the sharder tells how far it is; an older one does not."""
        return self.counter is not None

    def text(self, at: float) -> str:
        """How far it is, for people; empty while nothing can be said."""
        if not self.is_told:
            waited_s = at - self.began_at
            told = f"waiting for {duration(waited_s)}; the sharder does not tell how far it is"
            return told if waited_s >= PATIENCE_S else ""
        far = f"{self.done:,} of {self.total:,} objects given up"
        if self.done == self.total:
            return f"{far}; the ring goes when no replica holds a Lease"
        left_s, per_s = self._pace.left_s, self._pace.per_s
        if not left_s or not per_s:
            return far
        rate = f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.1f}"
        return f"{far} ({rate}/s, about {duration(left_s)} left)"
