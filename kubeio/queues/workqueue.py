"""A queue of keys with client-go's semantics, for one event loop.

Owns which keys wait, are being processed, or are due later. Does not know what a key means and runs no
workers. Filled by informers' callbacks and timers, emptied by the workers of `shard_controller` and `sharder`.

A key is in at most one of: *waiting* (will be handed out once, however often it is added), *processing*
(handed out, not done), *processing and wanted again* (waits as soon as it is done). Independent of that it
may be *delayed*: it will be added at a known time, the earliest of those asked for. Two workers never hold
the same key.

Keys of a higher priority are handed out first, but none starves: see `Priority`.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import random
from collections import deque
from collections.abc import Hashable, Iterable
from itertools import chain, islice
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from kubeio.backoff import exponential_s, jittered_s
from kubeio.clock import Clock
from kubeio.errors import KubeError
from kubeio.queues.levels import Level, Priority, next_level
from kubeio.queues.metrics import QueueMetrics

__all__ = ["KeyState", "Priority", "QueueClosed", "QueueMetrics", "WorkQueue"]

K = TypeVar("K", bound=Hashable)

_JITTER: Final = 0.2
_MAX_SLEEP_S: Final = 60.0
"""The loop's clock may stand still while the machine is suspended, ours does not: check at least this often."""
_GRANULARITY_S: Final = 1e-6
"""Timers of the loop are rounded: a key that is due within this is due."""
_STALE_ENTRIES: Final = 1024
"""Heap entries that were superseded are swept out when there are more of them than this and than live ones."""


class QueueClosed(KubeError):
    """The queue was closed and nothing waits in it: the worker ends."""


class KeyState(NamedTuple):
    """State of one key in a queue. Times are in seconds; None: the key is not in that state."""

    waiting_s: float | None
    running_s: float | None
    is_wanted_again: bool
    due_in_s: float | None
    failures: int


class WorkQueue(Generic[K]):
    """Keys by priority, then in the order in which they came to it; each is handed to one worker at a time.

    A key that waits is raised to the end of a higher priority that `add` names; it is never lowered.
    Cost: add, get, done, discard O(1); add_after O(log delayed). A key handed over costs about 1 us.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        base_delay_s: float = 0.005,
        max_delay_s: float = 1000.0,
        metrics: QueueMetrics | None = None,
        priorities: Iterable[enum.IntEnum] = Priority,
    ) -> None:
        """*priorities*: the levels; the greatest number is handed out first."""
        self._clock = clock
        self._rng = rng
        self._base_delay_s = base_delay_s
        self._max_delay_s = max_delay_s
        self._metrics = metrics
        ranked = sorted(priorities, reverse=True)
        self._levels: dict[int, Level[K]] = {priority: Level(priority) for priority in ranked}
        self._by_rank = tuple(self._levels.values())  # the highest priority first
        self._again: dict[K, int] = {}
        self._processing: dict[K, float] = {}  # since when, in order of hand-over
        self._failures: dict[K, int] = {}
        self._due: dict[K, tuple[float, int, K, int]] = {}
        self._heap: list[tuple[float, int, K, int]] = []  # an entry counts only while it is the one in `_due`
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[tuple[K, int]]] = deque()  # non-empty only while nothing waits
        self._is_closed = False
        if metrics is not None:
            metrics.read_from(
                depth={str(int(level.priority)): level.__len__ for level in self._by_rank},
                unfinished_s=self._unfinished_s,
                longest_s=self._longest_running_s,
            )

    def __len__(self) -> int:
        """Keys that wait to be handed out."""
        return sum(map(len, self._by_rank))

    def is_processing(self, key: K) -> bool:
        """Whether *key* was handed out and is not done."""
        return key in self._processing

    @property
    def processing(self) -> frozenset[K]:
        """Keys handed out and not done."""
        return frozenset(self._processing)

    @property
    def delayed(self) -> int:
        """Keys that will be added later."""
        return len(self._due)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def oldest_wait_s(self) -> float:
        """Seconds for which the first key of a level has waited, the longest of all levels; 0 if no key waits."""
        heads = [level.head_since() for level in self._by_rank if level.since]
        return self._clock.now() - min(heads) if heads else 0.0

    def state(self, key: K) -> KeyState:
        """State of *key* now."""
        now = self._clock.now()
        waits = (level.since.get(key) for level in self._by_rank)
        waiting_since = next((since for since in waits if since is not None), None)
        started_at = self._processing.get(key)
        due = self._due.get(key)
        return KeyState(
            waiting_s=None if waiting_since is None else now - waiting_since,
            running_s=None if started_at is None else now - started_at,
            is_wanted_again=key in self._again,
            due_in_s=None if due is None else due[0] - now,
            failures=self.failures(key),
        )

    def first_waiting(self, count: int) -> list[K]:
        """Up to *count* keys that wait, the highest priority first."""
        return list(islice(chain.from_iterable(level.since for level in self._by_rank), count))

    def next_due(self, count: int) -> list[K]:
        """Up to *count* delayed keys, the earliest first. Cost: O(delayed)."""
        return [entry[2] for entry in heapq.nsmallest(count, self._due.values(), key=itemgetter(0, 1))]

    def failures(self, key: K) -> int:
        """Number of rate-limited additions of *key* since it was last forgotten."""
        return self._failures.get(key, 0)

    def add(self, key: K, *, priority: int = Priority.NORMAL) -> None:
        """Hand *key* out once more, starting not before now; a key that waits is raised to *priority*."""
        if self._is_closed:
            return
        level = self._levels[priority]
        if key in level.since:
            return
        if self._processing and key in self._processing:
            self._want_again(key, priority)
            return
        for other in self._by_rank:
            if other is not level and other.since and key in other.since:
                if other.priority < priority and (since := other.remove(key)) is not None:
                    level.push(key, since)
                return
        if self._metrics is not None:
            self._metrics.adds += 1
        if self._getters:
            self._enqueue(key, self._clock.now(), priority)
        else:
            level.push(key, self._clock.now())

    def add_after(self, key: K, delay_s: float, *, priority: int = Priority.NORMAL) -> None:
        """Add *key* in *delay_s* seconds; of several such calls the earliest time and the highest priority count."""
        if self._is_closed:
            return
        if self._metrics is not None:
            self._metrics.retries += 1
        if delay_s <= 0:
            self.add(key, priority=priority)
            return
        due_at = self._clock.now() + delay_s
        known = self._due.get(key)
        if known is not None:
            if known[0] <= due_at and known[3] >= priority:
                return
            due_at, priority = min(known[0], due_at), max(known[3], priority)
        self._sequence += 1
        entry = self._due[key] = (due_at, self._sequence, key, priority)
        heapq.heappush(self._heap, entry)
        self._sweep_stale()
        if self._heap[0] is entry:
            self._arm()

    def add_rate_limited(self, key: K, *, priority: int = Priority.NORMAL) -> None:
        """Add *key* after a delay that doubles with each call until `forget`."""
        if self._is_closed:
            return
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = exponential_s(failures, base_s=self._base_delay_s, max_s=self._max_delay_s)
        self.add_after(key, jittered_s(delay_s, self._rng, jitter=_JITTER), priority=priority)

    def forget(self, key: K) -> None:
        """Start the back-off of *key* over: it was processed well, or it is gone."""
        self._failures.pop(key, None)

    def discard(self, key: K) -> None:
        """Forget every addition of *key*, due now or later. The worker that processes it still calls `done`."""
        for level in self._by_rank:
            if level.since:
                level.remove(key)
        self._again.pop(key, None)
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; getters are served in the order in which they came. Raises QueueClosed at the end."""
        level = next_level(self._by_rank)
        if level is not None:
            key, waiting_since = level.pop()
            self._hand_out(key, waiting_since)
            return key
        if self._is_closed:
            raise QueueClosed("the queue is closed and empty")
        getter: asyncio.Future[tuple[K, int]] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            return (await getter)[0]
        except asyncio.CancelledError:
            if getter.done() and not getter.cancelled() and getter.exception() is None:
                self._take_back(*getter.result())
            raise

    def done(self, key: K) -> None:
        """Processing of *key* ended. If it was added meanwhile, it waits now. Unknown keys are ignored."""
        started_at = self._processing.pop(key, None)
        if started_at is None:
            return
        now = self._clock.now()
        if self._metrics is not None:
            self._metrics.work_duration.observe(now - started_at)
        priority = self._again.pop(key, None) if self._again else None
        if priority is None:
            return
        if self._getters:
            self._enqueue(key, now, priority)
        else:
            self._levels[priority].push(key, now)

    def close(self, *, drain: bool = True) -> None:
        """Accept nothing more and drop what is delayed. Waiting keys are still handed out if *drain*.

        Keys wanted again while they are processed count as waiting.
        """
        self._is_closed = True
        self._due.clear()
        self._heap.clear()
        if not drain:
            for level in self._by_rank:
                level.clear()
            self._again.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for getter in self._getters:
            if not getter.done():
                getter.set_exception(QueueClosed("the queue is closed and empty"))
        self._getters.clear()

    def _want_again(self, key: K, priority: int) -> None:
        """*key* is being processed: remember that it is to be handed out once more."""
        known = self._again.get(key)
        if known is None and self._metrics is not None:
            self._metrics.adds += 1
        if known is None or known < priority:
            self._again[key] = priority

    def _enqueue(self, key: K, waiting_since: float, priority: int) -> None:
        """Give *key* to the getter that waits longest, else append it to its level."""
        if not self._given(key, waiting_since, priority):
            self._levels[priority].push(key, waiting_since)

    def _given(self, key: K, waiting_since: float, priority: int) -> bool:
        """Whether a getter waited, and has *key* now."""
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():  # else it was cancelled and has not run yet
                self._hand_out(key, waiting_since)
                getter.set_result((key, priority))
                return True
        return False

    def _hand_out(self, key: K, waiting_since: float) -> None:
        now = self._clock.now()
        self._processing[key] = now
        if self._metrics is not None:
            self._metrics.queue_duration.observe(now - waiting_since)

    def _take_back(self, key: K, priority: int) -> None:
        """Take *key* back from a getter that was cancelled before it worked: the key goes first in its level."""
        handed_out_at = self._processing.pop(key)
        priority = max(priority, self._again.pop(key, priority))
        if not self._given(key, handed_out_at, priority):
            self._levels[priority].push_first(key, handed_out_at)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            delay_s = min(max(self._heap[0][0] - self._clock.now(), 0.0), _MAX_SLEEP_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._add_due)

    def _add_due(self) -> None:
        horizon = self._clock.now() + _GRANULARITY_S
        while self._heap and self._heap[0][0] <= horizon:
            entry = heapq.heappop(self._heap)
            key = entry[2]
            if self._due.get(key) is entry:
                del self._due[key]
                self.add(key, priority=entry[3])
        self._timer = None
        self._arm()

    def _sweep_stale(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) is entry]
            heapq.heapify(self._heap)

    def _unfinished_s(self) -> float:
        now = self._clock.now()
        return sum(now - started_at for started_at in self._processing.values())

    def _longest_running_s(self) -> float:
        for started_at in self._processing.values():  # in order of hand-over
            return self._clock.now() - started_at
        return 0.0
