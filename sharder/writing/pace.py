"""Whose turn it is to write: everything that patches objects in one sharder process passes here.

Owns the writes under way, the line of those who wait (first come, first served) and the pause that the server asked
for, which holds for everybody. How many may be under way is `sharder.writing.limit`'s decision. Leases are never
written through it: renewals and takes have connections of their own and wait for nobody.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from kubeio.errors import ApiError, ServerFailure, TooManyRequests, Unreachable
from sharder.writing.limit import Limit

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.errors import KubeError

UNNAMED_PAUSE_S: Final = 1.0
"""After a 429 that does not say how long."""
LONGEST_PAUSE_S: Final = 60.0
JITTER: Final = 0.1
"""A pause is lengthened by up to this part: else everyone who was turned away comes back in one instant."""


class Pace:
    """Turns to write. `enter` and `leave` go in pairs; between them `answered` or `failed` tells what came of it."""

    def __init__(self, *, clock: Clock, rng: random.Random, limit: Limit | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._limit = limit or Limit()
        self._line: deque[asyncio.Future[None]] = deque()
        self._paused_until = clock.now()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0
        """Writes under way."""

    @property
    def limit(self) -> int:
        """Writes that may be under way now."""
        return self._limit.value

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._line)

    def paused_s(self) -> float:
        """How long nobody may begin; 0 when there is no pause."""
        return max(0.0, self._paused_until - self._clock.now())

    async def enter(self) -> None:
        """Wait for a turn, after everyone who came before."""
        if not self._line and self._has_room():
            self.in_flight += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self._wake_after_pause()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # our turn came together with our cancellation
            raise

    def leave(self) -> None:
        """Give the turn back."""
        self.in_flight -= 1
        self._let_in()

    def answered(self, took_s: float) -> None:
        """The server judged a write: done, or refused for a reason of the object's own."""
        self._limit.answered(at=self._clock.now(), took_s=took_s, in_flight=self.in_flight)

    def failed(self, took_s: float, error: KubeError) -> None:
        """The server did not judge a write: too many, unwell, or silent. What it asks for holds for everybody."""
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

    def _has_room(self) -> bool:
        return self.in_flight < self._limit.value and self._clock.now() >= self._paused_until

    def _let_in(self) -> None:
        while self._line and self._has_room():
            turn = self._line.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        self._wake_after_pause()

    def _wake_after_pause(self) -> None:
        """Somebody waits, and perhaps nobody will leave before the pause ends."""
        if self._line and self._timer is None and (left_s := self.paused_s()):
            self._timer = asyncio.get_running_loop().call_later(left_s, self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        self._let_in()
