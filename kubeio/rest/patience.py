"""A bound on each wait of many, with one timer: `asyncio.timeout` costs more than decoding a watch event does.

Knows nothing of watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Final, TypeVar

T = TypeVar("T")


class Patience:
    """Waits of one task at a time, each for at most *limit_s*; time between the waits does not count."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s: Final = limit_s
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Task[object] | None = None
        self._waits_since = 0.0
        self._is_over = False
        self._timer = self._loop.call_later(limit_s, self._look)

    def __enter__(self) -> Patience:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()

    async def next(self, items: AsyncIterator[T]) -> T | None:
        """The next of *items*; None at their end. Raises TimeoutError."""
        return await self.wait_for(anext(items, None))

    async def wait_for(self, call: Awaitable[T]) -> T:
        """Await *call* and give its result. Raises TimeoutError after *limit_s*."""
        task = asyncio.current_task()
        asked_before = task.cancelling() if task is not None else 0
        self._waiter = task
        self._waits_since = self._loop.time()
        try:
            return await call
        except asyncio.CancelledError as cancelled:
            # As asyncio.timeout does it: our own request to cancel is taken back, anybody else's goes on.
            if self._is_over and task is not None and task.uncancel() <= asked_before:
                raise TimeoutError from cancelled
            raise
        finally:
            self._waiter = None

    def _look(self) -> None:
        left_s = self.limit_s
        if self._waiter is not None:
            left_s = self._waits_since + self.limit_s - self._loop.time()
            if left_s <= 0:
                self._is_over = True
                self._waiter.cancel()
                return
        self._timer = self._loop.call_later(left_s, self._look)
