"""Queue of pending objects, in the order of assignment. Pure: one owner, sync methods, time passed in.

Delays that people notice first go first: new objects and those that changed since their shard died, then the others of
dead shards, then the backlog of a first assignment (`sharder.unowned.pending.Lane`). In a lane, first come, first
served. No lane starves: every eighth slot of new objects goes to those of dead shards; the backlog has slots of its own
(`sharder.writing.limiter`). An object is in one state: queued, being worked, or due later. Like client-go's work queue,
but of short strings, and it knows which entries a read of the Leases covers.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.backoff import exponential_s, jittered_s
from sharder.unowned.pending import Lane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sharder.unowned.pending import PendingObjects

SHARE: Final = 8
"""Every so many turns of new objects, one goes to those of dead shards."""
FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 10.0
_JITTER: Final = 0.2


class Covered(NamedTuple):
    """Queue entries, with the versions known then, when read number *proof* began."""

    proof: int
    counts: tuple[int, ...]


class AssignmentQueue:
    """Names of *pending*, in the order in which they are to be looked at."""

    def __init__(self, pending: PendingObjects, *, rng: random.Random) -> None:
        self._pending = pending
        self._rng = rng
        self._lanes: tuple[deque[str], ...] = tuple(deque[str]() for _ in Lane)
        self._given = [0] * len(self._lanes)
        self._turns = [0] * len(self._lanes)
        self._busy: dict[str, bool] = {}
        """Being worked; true: to be looked at once more."""
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        """Turns to come now; some may turn out to wait no more."""
        return sum(map(len, self._lanes))

    def count(self, lane: Lane) -> int:
        """Turns to come in *lane*."""
        return len(self._lanes[lane])

    def names(self) -> Iterator[str]:
        """All turns to come, in no order that matters; some may turn out to wait no more."""
        return chain.from_iterable(self._lanes)

    def add(self, name: str) -> None:
        """Look at *name* when its turn comes; if it is being worked, once more after that."""
        if name in self._busy:
            self._busy[name] = True
        elif self._pending.queue(name):
            self._lanes[self._pending.lane(name)].append(name)

    def hurry(self, name: str) -> None:
        """Give *name* its turn in the first lane. Cost: O(turns in its lane)."""
        lane, is_queued = self._pending.lane(name), self._pending.is_queued(name)
        if lane is Lane.NEW:
            return
        self._pending.raise_lane(name)
        if is_queued:  # what stood behind it must not be covered by a read that it was not covered by
            self._lanes[lane].remove(name)
            self._given[lane] += 1

    def covered(self) -> Covered:
        """A read of the Leases begins now: it is evidence for all that is on the agenda."""
        counts = [given + len(lane) for given, lane in zip(self._given, self._lanes, strict=True)]
        return Covered(self._pending.begin_proof(), tuple(counts))

    def covers(self, covered: Covered, lanes: tuple[Lane, ...] = tuple(Lane)) -> bool:
        """Whether *covered* has something to give out in *lanes*."""
        given, counts = self._given, covered.counts
        for lane in lanes:  # noqa: SIM110 - asked for every write: a generator costs more
            if self._lanes[lane] and given[lane] < counts[lane]:
                return True
        return False

    def take(self, covered: Covered, lanes: tuple[Lane, ...] = tuple(Lane)) -> str | None:
        """The next of *covered* in *lanes*; it is being worked until `done`. None: nothing else is covered."""
        while (lane := self._next_lane(covered, lanes)) is not None:
            name = self._lanes[lane].popleft()
            self._given[lane] += 1
            if not self._pending.is_proven(name, covered.proof):
                self._lanes[lane].append(name)  # a newer version came after the read had begun
            elif self._pending.unqueue(name) and name not in self._busy:
                self._busy[name] = False
                return name
        return None

    def done(self, name: str) -> None:
        """*name* was looked at: what came meanwhile gives it another turn."""
        self._failures.pop(name, None)
        self._end(name)

    def done_until(self, name: str, due_at: float) -> None:
        """Look at *name* again at *due_at*, or when something changes."""
        self._failures.pop(name, None)
        self._end(name)
        self._schedule(name, due_at)

    def failed(self, name: str, *, now: float) -> None:
        """Look at *name* again after a while: the longer, the more often it failed."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        delay_s = exponential_s(failures, base_s=FIRST_RETRY_S, max_s=LONGEST_RETRY_S)
        self._busy.pop(name, None)
        self._schedule(name, now + jittered_s(delay_s, self._rng, jitter=_JITTER))

    @property
    def next_due_at(self) -> float | None:
        """Instant at which `wake` has something to do; None if nothing is due later."""
        return self._later[0][0] if self._later else None

    def wake(self, now: float) -> None:
        """Give turns to what is due."""
        while self._later and self._later[0][0] <= now:
            due_at, name = heapq.heappop(self._later)
            if self._due.get(name) == due_at:
                del self._due[name]
                if self._pending.knows(name):
                    self.add(name)
                else:
                    self._failures.pop(name, None)

    def _end(self, name: str) -> None:
        if self._busy.pop(name, False):
            self.add(name)

    def _schedule(self, name: str, due_at: float) -> None:
        """The earliest of what was asked for counts."""
        if due_at < self._due.get(name, float("inf")):
            self._due[name] = due_at
            heapq.heappush(self._later, (due_at, name))

    def _next_lane(self, covered: Covered, lanes: tuple[Lane, ...]) -> Lane | None:
        """The lane whose turn it is among those of *lanes* that have something covered."""
        given, counts = self._given, covered.counts
        chosen = None
        for lane in lanes:
            if not self._lanes[lane] or given[lane] >= counts[lane]:
                continue
            if chosen is not None:
                self._turns[chosen] += 1
                if self._turns[chosen] % SHARE:
                    return chosen
            chosen = lane
        return chosen
