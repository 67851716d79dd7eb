"""Calls to one server: connection, credentials, deadline, and the few silent repetitions there are.

Owns the pool, the streams' connections, and what happens at 401. One event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import urlencode

from kubeio.http.connection import Connection
from kubeio.http.dialer import Dialer
from kubeio.http.endpoint import Credential, Credentials, Endpoint, Proxy, Trust
from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, BrokenMessage, Call
from kubeio.http.pool import Pool, PoolClosed

Observe = Callable[[int | None, str, str, float], None]
"""Status (None: no answer), method, host and seconds of each request that was sent."""


class Transport(Protocol):
    """Gets answers to calls. Raises BrokenMessage for none, and what the credentials raise."""

    async def answer(self, call: Call, timeout_s: float) -> Answer:
        """The whole answer, of any status."""

    def stream(self, call: Call, timeout_s: float) -> AbstractAsyncContextManager[Lines | Answer]:
        """The lines of the answer; one that is a failure comes whole. *timeout_s* lasts until it begins."""

    async def close(self) -> None:
        """End calls still under way."""


class SocketTransport:
    """Transport to *endpoint* over at most *max_connections* kept connections; streams have their own.

    *headers* go with each request.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        trust: Trust,
        proxy: Proxy | None,
        credentials: Credentials,
        headers: tuple[tuple[str, str], ...],
        max_connections: int,
        observe: Observe | None,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._headers = headers
        self._observe_request = observe
        self._dialer = Dialer(endpoint, trust, proxy)
        self._pool = Pool(self._dialer.dial, limit=max_connections)
        self._streams: set[Connection] = set()
        self._is_closed = False
        self._head: tuple[Credential, str] | None = None

    async def close(self) -> None:
        """Close every connection; calls still under way fail."""
        self._is_closed = True
        await self._pool.close()
        for connection in list(self._streams):
            connection.abort()
            await connection.wait_closed()

    async def answer(self, call: Call, timeout_s: float) -> Answer:
        """The whole answer, of any status. Observed once per request sent."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self._credentials.current() or await self._renewed(deadline)
        send = self._exchange if self._observe_request is None else self._observed
        answer = await send(call, credential, deadline)
        if answer.status == 401:
            other = await self._other(credential, deadline)
            if other is not None:
                answer = await send(call, other, deadline)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, timeout_s: float) -> AsyncIterator[Lines | Answer]:
        """The lines of the answer to *call*, or a failure whole. Leaving closes the connection."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self._credentials.current() or await self._renewed(deadline)
        answer, connection = await self._begin_stream(call, credential, deadline)
        try:
            if answer.status == 401:
                other = await self._other(credential, deadline)
                if other is not None:
                    self._end_stream(connection)
                    answer, connection = await self._begin_stream(call, other, deadline)
            yield answer if connection.lines is None else connection.lines
        finally:
            self._end_stream(connection)

    # -- inside ----------------------------------------------------------------------------------------

    async def _observed(self, call: Call, credential: Credential, deadline: float) -> Answer:
        begun = time.perf_counter()
        status = None
        try:
            answer = await self._exchange(call, credential, deadline)
            status = answer.status
        finally:
            self._observe(status, call, begun)
        return answer

    def _observe(self, status: int | None, call: Call, begun: float) -> None:
        if self._observe_request is not None:
            self._observe_request(status, call.method, self._endpoint.authority, time.perf_counter() - begun)

    async def _exchange(self, call: Call, credential: Credential, deadline: float) -> Answer:
        request = self._request_bytes(call, credential)
        is_head = call.method == "HEAD"
        fresh = False
        while True:
            connection = None if fresh else self._pool.take(credential.certificate)
            if connection is None:
                connection = await self._acquire(credential, deadline, fresh=fresh)
            was_used = connection.exchanges > 0
            try:
                answer = await connection.exchange(request, deadline=deadline, head_only=is_head)
            except BaseException:
                self._pool.discard(connection)
                raise
            if isinstance(answer, Answer):
                self._pool.release(connection)
                return answer
            self._pool.discard(connection)
            if fresh or not was_used or answer.answered or answer.expired or call.method != "GET":
                raise answer
            fresh = True

    async def _acquire(self, credential: Credential, deadline: float, *, fresh: bool) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.acquire(credential.certificate, fresh=fresh)
        except TimeoutError:
            raise _unsent("no connection in time") from None
        except PoolClosed:
            raise _unsent("this client is closed") from None

    async def _begin_stream(
        self, call: Call, credential: Credential, deadline: float
    ) -> tuple[Answer, Connection]:
        if self._is_closed:
            raise _unsent("this client is closed")
        begun = time.perf_counter()
        connection: Connection | None = None
        answer: Answer | BrokenMessage | None = None
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._dialer.dial(credential.certificate)
            self._streams.add(connection)
            connection.on_lost(self._streams.discard)
            answer = await connection.stream(self._request_bytes(call, credential), deadline=deadline)
        except TimeoutError:
            raise _unsent("no connection in time") from None
        finally:
            if connection is not None and not isinstance(answer, Answer):
                self._end_stream(connection)
            self._observe(answer.status if isinstance(answer, Answer) else None, call, begun)
        if isinstance(answer, BrokenMessage):
            raise answer
        return answer, connection

    def _end_stream(self, connection: Connection) -> None:
        connection.abort()
        self._streams.discard(connection)

    async def _renewed(self, deadline: float) -> Credential:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._credentials.renewed()
        except TimeoutError:
            raise _unsent("no credentials in time") from None

    async def _other(self, refused: Credential, deadline: float) -> Credential | None:
        """Credentials other than *refused*, if the source has any."""
        self._credentials.reject(refused)
        credential = self._credentials.current() or await self._renewed(deadline)
        return None if credential == refused else credential

    def _request_bytes(self, call: Call, credential: Credential) -> bytes:
        if self._head is None or self._head[0] is not credential:
            self._head = (credential, self._static_head(credential))
        query = _encoded(tuple(call.query.items())) if call.query else ""
        head = (
            f"{call.method} {self._endpoint.base_path}{call.path}{query} HTTP/1.1\r\n{self._head[1]}"
            f"{_lines(call.headers)}Accept: {call.accept}\r\n"
        )
        body = call.body
        if body is None:
            # servers since 1.37 compress watches, too, if asked: it saves nothing here
            encoding = "identity" if call.is_stream else "gzip"
            return f"{head}Accept-Encoding: {encoding}\r\n\r\n".encode("latin-1")
        return (
            f"{head}Content-Type: {call.content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode(
                "latin-1"
            )
            + body
        )

    def _static_head(self, credential: Credential) -> str:
        lines = [f"Host: {self._endpoint.authority}"]
        if credential.authorization:
            lines.append(f"Authorization: {credential.authorization}")
        return "".join(f"{line}\r\n" for line in lines) + _lines(self._headers)


def _unsent(reason: str) -> BrokenMessage:
    return BrokenMessage(reason, sent=False, answered=False)


@functools.lru_cache(maxsize=64)
def _lines(headers: tuple[tuple[str, str], ...]) -> str:
    """*headers* as they stand in a request."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


@functools.lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """*query* as it follows a path: thousands of patches in a row have the same one."""
    return "?" + urlencode(query)
