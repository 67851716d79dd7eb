"""Limiter of label patches: everything that patches objects in one sharder process passes here.

Owns the writes under way, the queues of those that wait, and the pause that the server asked for, which holds for all.
`sharder.writing.adaptive_limit` decides how many may be under way. Leases are never written through it: renewals and
takes have connections of their own.

A queue is first come, first served. Writes for objects without a worker go ahead of all others, then those of a more
urgent pace. No queue starves: every eighth write comes from one of the others.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from kubeio.errors import ApiError, ServerFailure, TooManyRequests, Unreachable
from sharder.ringspec.spec import Pace
from sharder.writing.adaptive_limit import AdaptiveLimit

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.errors import KubeError

SHARE: Final = 8
"""One slot in so many goes to the queues behind the first."""
UNNAMED_PAUSE_S: Final = 1.0
"""After a 429 that does not say how long."""
LONGEST_PAUSE_S: Final = 60.0
JITTER: Final = 0.1
"""A pause is lengthened by up to this part: else all refused writes come back in one instant."""
_QUEUES: Final = tuple(
    (ahead, pace) for ahead in (True, False) for pace in (Pace.URGENT, Pace.NORMAL, Pace.BACKGROUND)
)
"""From the first to the last."""


class WriteLimiter:
    """Slots for writes. `enter` and `leave` go in pairs; between them `answered` or `failed` says what came of it."""

    def __init__(self, *, clock: Clock, rng: random.Random, limit: AdaptiveLimit | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._limit = limit or AdaptiveLimit()
        self._queues = {key: deque[asyncio.Future[None]]() for key in _QUEUES}
        self._granted = 0
        self._paused_until = clock.now()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0
        """Writes under way."""

    def allowed(self, pace: Pace) -> int:
        """Writes that may be under way when one of *pace* is to begin."""
        return self._limit.allowed(pace)

    @property
    def pending(self) -> int:
        """Writes that wait for a slot."""
        return sum(map(len, self._queues.values()))

    def paused_s(self) -> float:
        """Seconds until a write may begin again; 0 when there is no pause."""
        return max(0.0, self._paused_until - self._clock.now())

    async def enter(self, pace: Pace, *, ahead: bool = False) -> None:
        """Wait for a slot at *pace*; *ahead*: the object has no worker."""
        if not any(self._queues.values()) and self._may_begin(pace):
            self.in_flight += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[ahead, pace].append(slot)
        self._grant()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.leave()  # the slot came together with our cancellation
            raise

    def leave(self) -> None:
        """Give the slot back."""
        self.in_flight -= 1
        self._grant()

    def answered(self, took_s: float) -> None:
        """The server judged a write: done, or refused for a reason of the object's own."""
        self._limit.answered(
            at=self._clock.now(),
            took_s=took_s,
            in_flight=self.in_flight,
            held_back=any(self._queues.values()),
        )

    def failed(self, took_s: float, error: KubeError) -> None:
        """The server did not judge a write: too many, unwell, or silent. The pause that it asks for holds for all."""
        if not isinstance(error, TooManyRequests | ServerFailure | Unreachable):
            self.answered(took_s)
            return
        now = self._clock.now()
        self._limit.refused(at=now, took_s=took_s)
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        if asked_s is None and isinstance(error, TooManyRequests):
            asked_s = UNNAMED_PAUSE_S
        if asked_s:
            pause_s = min(asked_s, LONGEST_PAUSE_S) * (1 + JITTER * self._rng.random())
            self._paused_until = max(self._paused_until, now + pause_s)

    def _may_begin(self, pace: Pace) -> bool:
        return self.in_flight < self._limit.allowed(pace) and self._clock.now() >= self._paused_until

    def _grant(self) -> None:
        while (queue := self._next_queue()) is not None:
            slot = queue.popleft()
            if not slot.done():
                self.in_flight += 1
                slot.set_result(None)
        self._wake_after_pause()

    def _next_queue(self) -> deque[asyncio.Future[None]] | None:
        """The queue to serve next; None: no write may begin."""
        pending = [(pace, queue) for (_, pace), queue in self._queues.items() if queue]
        ready = [queue for pace, queue in pending if self._may_begin(pace)]
        if not ready:
            return None
        self._granted += 1
        shares, is_shared = divmod(self._granted, SHARE)
        if is_shared or len(pending) == 1:
            return ready[0]
        others = [queue for _, queue in pending if queue is not ready[0]]
        return others[shares % len(others)]

    def _wake_after_pause(self) -> None:
        """Writes wait, and perhaps none is under way whose end would start them after the pause."""
        if self._timer is None and any(self._queues.values()) and (left_s := self.paused_s()):
            self._timer = asyncio.get_running_loop().call_later(left_s, self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        self._grant()
