"""Connections kept between requests: at most so many, handed out in order of request, closed when long idle.

Owns which connection is idle, in use or being dialled; every decision is made synchronously, only dialling and
waiting for a connection are awaited. Knows neither requests nor credentials.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from kubeio.http.connection import Connection
from kubeio.http.endpoint import KeyPair

MAX_IDLE_S: Final = 60.0
"""Below the 90 s after which a Go server closes idle connections: we close first."""

Dial = Callable[[KeyPair | None], Awaitable[Connection]]


class PoolClosed(Exception):
    """The pool was closed; nothing is given out any more."""


class Pool:
    """At most *limit* connections. `take` or `acquire` one, then `release` or `discard` it."""

    def __init__(self, dial: Dial, *, limit: int, max_idle_s: float = MAX_IDLE_S) -> None:
        if limit < 1:
            raise ValueError(f"a pool of {limit} connections can serve no request")
        self._dial = dial
        self._limit = limit
        self._max_idle_s = max_idle_s
        self._idle: list[Connection] = []  # the longest idle one first
        self._all: set[Connection] = set()
        self._slots_used = 0  # dialling or open
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take(self, identity: KeyPair | None) -> Connection | None:
        """An idle connection opened with *identity*, if there is one: then no caller waits. Never blocks."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.identity == identity:
                return connection
            self.discard(connection)
        return None

    async def acquire(self, identity: KeyPair | None, *, fresh: bool = False) -> Connection:
        """A connection opened with *identity*, in order of arrival; *fresh*: one that was not used yet.

        Raises: PoolClosed; whatever dialling raises. The caller limits the time.
        """
        if self._is_closed:
            raise PoolClosed
        connection = None if fresh else self.take(identity)
        if connection is not None:
            return connection
        if fresh and self._idle and self._slots_used >= self._limit:
            self.discard(self._idle.pop(0))
        if self._slots_used < self._limit:  # then no caller waits: free slots go to waiters first
            self._slots_used += 1
        else:
            connection = await self._wait_in_line()
            if connection is not None:
                if connection.is_reusable and connection.identity == identity and not fresh:
                    return connection
                connection.abort()  # its slot is ours
        return await self._dial_in_slot(identity)

    def release(self, connection: Connection) -> None:
        """*connection* had a whole answer: the next in line gets it, or it becomes idle."""
        if self._is_closed or not connection.is_reusable:
            self.discard(connection)
            return
        if self._waiters and self._hand_over(connection):
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._max_idle_s, self._close_aged)

    def discard(self, connection: Connection) -> None:
        """Close *connection*, whatever its state, and give its slot on."""
        connection.abort()
        self._free_slot()

    async def close(self) -> None:
        """Close every connection, those in use too, and refuse the callers that wait."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(PoolClosed())
        connections = list(self._all)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()
        self._idle.clear()

    async def _wait_in_line(self) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and waiter.done() and waiter.exception() is None:
                given = waiter.result()  # handed over together with our cancellation: pass it on
                if given is None:
                    self._free_slot()
                else:
                    self.release(given)
            raise

    async def _dial_in_slot(self, identity: KeyPair | None) -> Connection:
        try:
            connection = await self._dial(identity)
        except BaseException:
            self._free_slot()
            raise
        self._all.add(connection)
        connection.on_lost(self._forget)
        if self._is_closed:
            self.discard(connection)
            raise PoolClosed
        return connection

    def _hand_over(self, given: Connection | None) -> bool:
        """Give a connection, or (None) a free slot, to the first in line."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(given)
                return True
        return False

    def _free_slot(self) -> None:
        if not self._hand_over(None):
            self._slots_used -= 1

    def _forget(self, connection: Connection) -> None:
        """The socket is gone; if it was idle its slot is free (if in use its user discards it)."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            self._free_slot()

    def _close_aged(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        limit = loop.time() - self._max_idle_s
        while self._idle and self._idle[0].idle_since <= limit:
            self.discard(self._idle.pop(0))
        if self._idle:
            self._sweep = loop.call_at(
                max(self._idle[0].idle_since + self._max_idle_s, loop.time() + 0.01), self._close_aged
            )
