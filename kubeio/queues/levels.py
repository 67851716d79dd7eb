"""Priorities of keys, and the keys of one priority in their order. Pure.

Owns the order within a level and which level is next. `kubeio.queues.workqueue` owns everything else.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_PATIENCE: Final = 8
_STALE_ENTRIES: Final = 1024
"""Entries of keys that left are swept out when there are more of them than this and than live ones."""


class Priority(enum.IntEnum):
    """Priority of a key. The numbers are those that controller-runtime's dashboards show.

    The highest level that has keys is served first. A level that has keys gets at least every tenth hand-out.
    """

    HANDOFF = 100
    """Another replica waits for it."""
    NORMAL = 0
    """New, or changed, or to be tried again."""
    RESYNC = -100
    """Of a first list or a resync: nothing is known to have changed."""


class Level(Generic[K]):
    """Keys of one priority in the order in which they came, and since when each waits. All operations are O(1).

    Memory: about 90 bytes per key.
    """

    __slots__ = ("_left", "_order", "passed_over", "priority", "since")

    def __init__(self, priority: int) -> None:
        self.priority: Final = priority
        self.passed_over = 0
        """Hand-outs of other levels since the last one of this, while it had keys."""
        self.since: dict[K, float] = {}
        """Time at which each key began to wait; for reading. A method call would cost more than the read."""
        self._order: deque[K] = deque()
        self._left: dict[
            K, int
        ] = {}  # how many entries of `_order` do not count, always the first ones of a key

    def __len__(self) -> int:
        return len(self.since)

    def push(self, key: K, since: float) -> None:
        """*key*, which is not here, comes last. It waits *since* that moment, on the queue's clock."""
        self._order.append(key)
        self.since[key] = since

    def push_first(self, key: K, since: float) -> None:
        """*key*, which is not here and was not while others waited, comes first."""
        self._order.appendleft(key)
        self.since[key] = since

    def pop(self) -> tuple[K, float]:
        """The first key, and since when it waited. Raises IndexError if there is none."""
        if self._left:
            self._skip_left()
        key = self._order.popleft()
        since = self.since.pop(key)
        if not self.since:
            self.clear()
        return key, since

    def remove(self, key: K) -> float | None:
        """Take *key* out; since when it waited, None if it is not here."""
        since = self.since.pop(key, None)
        if since is not None:
            self._left[key] = self._left.get(key, 0) + 1
            if self.since:
                self._sweep_left()
            else:
                self.clear()
        return since

    def head_since(self) -> float:
        """Time at which the first key began to wait. Raises IndexError if there is none."""
        self._skip_left()
        return self.since[self._order[0]]

    def clear(self) -> None:
        """Drop every key."""
        self._order.clear()
        self.since.clear()
        self._left.clear()
        self.passed_over = 0

    def _skip_left(self) -> None:
        while self._left and self._order[0] in self._left:
            self._forget_left(self._order.popleft())

    def _forget_left(self, key: K) -> None:
        self._left[key] -= 1
        if not self._left[key]:
            del self._left[key]

    def _sweep_left(self) -> None:
        if len(self._order) > 2 * len(self.since) + _STALE_ENTRIES:
            entries, self._order = self._order, deque()
            for key in entries:
                if key in self._left:
                    self._forget_left(key)
                else:
                    self._order.append(key)


def next_level(levels: Sequence[Level[K]]) -> Level[K] | None:
    """Choose the level to serve next from *levels* (the highest first), and record it as served. None if no key waits.

    The highest level that has keys is chosen, unless a lower one was passed over too often: then the lowest of those.
    """
    first: Level[K] | None = None
    for level in levels:
        if level.since:
            if first is not None:
                return _next_of_several(levels)
            first = level
    if first is not None:
        first.passed_over = 0
    return first


def _next_of_several(levels: Sequence[Level[K]]) -> Level[K]:
    waiting = [level for level in levels if level.since]
    overdue = [level for level in waiting if level.passed_over >= _PATIENCE]
    chosen = overdue[-1] if overdue else waiting[0]
    for level in waiting:
        level.passed_over += 1
    chosen.passed_over = 0
    return chosen
