"""World of one run: virtual time, one heap of events, randomness by name, and the record of what happened."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

Action = Callable[[], object]
_MOST_PER_S: Final = 60_000
"""Events of one second, with up to 200 objects; a run of five minutes has 50,000 to 150,000."""
_MOST_PER_OBJECT: Final = 300
RECENT: Final = 400
"""Lines of the record that a failure shows, at most."""


class Violation(Exception):
    """A judge found what must never happen. *rule* is the judge's name, *what* one sentence."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what


class World:
    """Events of one run, in order of time and then of their registration.

    *keeps*: lines of the record that are kept, all of them for 0.
    """

    def __init__(self, seed: int, *, keeps: int = RECENT) -> None:
        self.seed: Final = seed
        self.now = 0.0
        """Seconds since the begin of the run."""
        self.events = 0
        self.violation: Violation | None = None
        """The first thing that a judge found; it ends the run."""
        self.record: Final[deque[str]] = deque(maxlen=keeps or None)
        self._heap: list[tuple[float, int, Action]] = []
        self._order: Final = count()
        self._most_per_s = _MOST_PER_S
        self._second_at = 0.0
        self._second_events = 0
        self._digest: Final = hashlib.blake2b(digest_size=12)

    def expect_objects(self, objects: int) -> None:
        """With so many objects more than usual may happen within a second: all are assigned and reconciled."""
        self._most_per_s = max(_MOST_PER_S, _MOST_PER_OBJECT * objects)

    def rng(self, name: str) -> random.Random:
        """Randomness for one purpose: what others draw does not change it."""
        return random.Random(f"{self.seed}/{name}")  # noqa: S311 - the seed makes it

    def at(self, when: float, action: Action) -> None:
        """Carry out *action* at *when*, now if that is over."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        """Carry out *action* in *delay_s*."""
        heapq.heappush(self._heap, (self.now + delay_s, next(self._order), action))

    def note(self, text: str, detail: bytes = b"") -> None:
        """Put *text* into the record, and with *detail* into the digest of the run."""
        line = f"{self.now:10.4f}  {text}"
        self.record.append(line)
        self._digest.update(line.encode())
        if detail:
            self._digest.update(detail)

    @property
    def digest(self) -> str:
        """Hash of every line of the record so far."""
        return self._digest.hexdigest()

    def _judge_pace(self) -> None:
        if self.now - self._second_at < 1:
            self.violate("rest", f"{self._most_per_s:,} events within a second: something does not wait")
        self._second_at, self._second_events = self.now, self.events

    def violate(self, rule: str, what: str) -> None:
        """End the run after this event. Never raises: the code that is judged would catch it."""
        if self.violation is None:
            self.violation = Violation(rule, what)

    def run(self, until: float) -> None:
        """Carry out every event up to *until*. Raises Violation."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action = heapq.heappop(heap)
            self.events += 1
            action()
            if self.events > self._second_events + self._most_per_s:
                self._judge_pace()
            if self.violation is not None:
                raise self.violation
        self.now = until
