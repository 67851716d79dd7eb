"""Lines of a streamed body: cut out of bytes that arrive in pieces of any size, kept until they are read.

Owns the lines that have come and were not yet read; holds the socket back when they are too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from kubeio.http.messages import BrokenMessage

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""No line is longer: the largest are objects of a few MiB."""
MAX_LAG_BYTES: Final = 1024 * 1024
"""The reader may lag by this much before the socket is no longer read."""


class LineTooLong(ValueError):
    """More than `MAX_LINE_BYTES` came without a newline."""


class LineSplitter:
    """Gives whole lines, without their newline; empty lines are skipped."""

    __slots__ = ("_max_line_bytes", "_pieces", "_pieces_bytes")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that *chunk* completes. Raises LineTooLong."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            lines[0] = b"".join(self._pieces) + lines[0]
            self._pieces.clear()
            self._pieces_bytes = 0
        if rest:
            self._pieces.append(rest)
            self._pieces_bytes += len(rest)
            if self._pieces_bytes > self._max_line_bytes:
                raise LineTooLong(f"a line of more than {self._max_line_bytes} bytes")
        return [line for line in lines if line]

    def rest(self) -> bytes:
        """Bytes after the last newline; empty if there are none."""
        return b"".join(self._pieces)


class Lines:
    """Lines of one stream, in order; ends when the server ends it, raises BrokenMessage when it is cut off."""

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

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        if not self._ready and not await self._comes():
            raise StopAsyncIteration
        line = self._ready.popleft()
        self._was_read(len(line))
        return line

    async def take(self, most: int, *, timeout_s: float | None = None) -> list[bytes]:
        """Lines that have arrived, *most* of them at most; waits for the first. Empty at the end of the stream.

        Raises TimeoutError if none came for *timeout_s*. The timer ends the wait itself: `asyncio.timeout` around
        each `take` would cost 4 us per event that comes alone, a third of reading it.
        """
        if not self._ready and not await self._comes(timeout_s):
            return []
        ready = self._ready
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        self._was_read(sum(map(len, taken)))
        return taken

    async def _comes(self, timeout_s: float | None = None) -> bool:
        """Wait for a line; whether there is one, or the stream ended. Raises what it was cut off by."""
        loop = asyncio.get_running_loop()
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return False
            waiter = self._waiter = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, _expire, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
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


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
