"""The lines of one watch between the socket that brings them and the coroutine that reads them.

Owns what has come and was not yet read; holds the socket back when that is too much. Fed by
`kubeio.rest.connection`, read through `kubeio.rest.client.Client.stream`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from kubeio.rest.lines import LineSplitter
from kubeio.rest.messages import BrokenMessage

MAX_LAG_BYTES: Final = 1024 * 1024
"""The reader may lag by this much before the socket is no longer read."""


class Lines:
    """The lines of one stream, in order; ends when the server ends it, raises Broken when it is cut off."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._splitter = LineSplitter()
        self._ready: deque[bytes] = deque()
        self._ready_bytes = 0
        self._pause = pause
        self._resume = resume
        self._is_paused = False
        self._is_over = False
        self._failure: BrokenMessage | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.translate: Callable[[BrokenMessage], Exception] = lambda broken: broken
        """What to raise for a stream that was cut off."""

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        if not self._ready and not await self._comes():
            raise StopAsyncIteration
        line = self._ready.popleft()
        self._was_read(len(line))
        return line

    async def take(self, most: int) -> list[bytes]:
        """Lines that have arrived, *most* of them at most; waits for the first. Empty at the end of the stream."""
        if not self._ready and not await self._comes():
            return []
        ready = self._ready
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        self._was_read(sum(map(len, taken)))
        return taken

    async def _comes(self) -> bool:
        """Wait for a line; whether there is one, or the stream ended. Raises what it was cut off by."""
        while not self._ready:
            if self._failure is not None:
                raise self.translate(self._failure)
            if self._is_over:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    def _was_read(self, count: int) -> None:
        self._ready_bytes -= count
        if self._is_paused and self._ready_bytes <= MAX_LAG_BYTES // 2:
            self._is_paused = False
            self._resume()

    def feed(self, chunk: bytes) -> None:
        """Take *chunk* of the body. Raises LineTooLong."""
        lines = self._splitter.feed(chunk)
        if lines:
            self._ready.extend(lines)
            self._ready_bytes += sum(map(len, lines))
            self._wake()
            if self._ready_bytes > MAX_LAG_BYTES and not self._is_paused:
                self._is_paused = True
                self._pause()

    def end(self) -> None:
        """The body is complete; what follows the last newline is a line too."""
        rest = self._splitter.rest()
        if rest and not self._is_over:
            self._ready.append(rest)
            self._ready_bytes += len(rest)
        self._is_over = True
        self._wake()

    def fail(self, failure: BrokenMessage) -> None:
        """The body was cut off; whole lines that came before are still given."""
        if not self._is_over and self._failure is None:
            self._failure = failure
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
