"""Gets an answer for a call: connection, credentials, deadline, and the few silent repetitions there are.

Owns the pool, the streams' connections, what happens at 401, and the translation of every failure into
`kubeio.errors`. Knows HTTP but no objects. One event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from kubeio.access.cluster import Cluster
from kubeio.access.credentials import Credential
from kubeio.clock import Clock
from kubeio.errors import ApiError, Unreachable
from kubeio.rest import answers
from kubeio.rest.connection import Connection
from kubeio.rest.dialer import Dialer
from kubeio.rest.line_stream import Lines
from kubeio.rest.messages import Answer, BrokenMessage
from kubeio.rest.pool import Pool, PoolClosed

if TYPE_CHECKING:
    from kubeio.rest.metrics import ClientMetrics


class Call(msgspec.Struct, gc=False):
    """One request, still without credentials; its path is quoted."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    body: bytes | None = None
    content_type: str = "application/json"
    is_stream: bool = False


class Transport:
    """Sends calls to *cluster*. Raises what `kubeio.rest.client.Client` raises."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_connections: int,
        user_agent: str,
        clock: Clock,
        metrics: ClientMetrics | None,
    ) -> None:
        self.cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._user_agent = user_agent
        self._dialer = Dialer(cluster)
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
        """The answer, below 300. Observed in the metrics once per request sent."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self.cluster.credentials.current() or await self._renewed(call, deadline)
        send = self._exchange if self._metrics is None else self._observed
        answer = await send(call, credential, deadline)
        if answer.status == 401:
            other = await self._other(call, credential, deadline)
            if other is not None:
                answer = await send(call, other, deadline)
        if answer.status >= 300:
            raise self._failure(call, answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, timeout_s: float) -> AsyncIterator[Lines]:
        """The lines of the answer to *call*; *timeout_s* lasts until it begins. Leaving closes the connection."""
        connection, lines = await self._open_stream(call, timeout_s)
        try:
            lines.translate = lambda broken: self._unreachable(call, broken)
            yield lines
        finally:
            self._end_stream(connection)

    def attempted(self, call: Call) -> str:
        """Verb, path and server, for messages."""
        return f"{call.method} {call.path} on {self.cluster.server}"

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
        if self._metrics is not None:
            host = self.cluster.endpoint.authority
            self._metrics.observe(status, call.method, host, time.perf_counter() - begun)

    async def _exchange(self, call: Call, credential: Credential, deadline: float) -> Answer:
        request = self._request_bytes(call, credential)
        is_head = call.method == "HEAD"
        fresh = False
        while True:
            connection = None if fresh else self._pool.take(credential.certificate)
            if connection is None:
                connection = await self._acquire(call, credential, deadline, fresh=fresh)
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
                raise self._unreachable(call, answer)
            fresh = True

    async def _acquire(
        self, call: Call, credential: Credential, deadline: float, *, fresh: bool
    ) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.acquire(credential.certificate, fresh=fresh)
        except TimeoutError:
            reason = "no connection in time"
        except PoolClosed:
            reason = "this client is closed"
        except BrokenMessage as broken:
            reason = broken.reason
        raise Unreachable(self.attempted(call), reason, maybe_done=False)

    async def _open_stream(self, call: Call, timeout_s: float) -> tuple[Connection, Lines]:
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self.cluster.credentials.current() or await self._renewed(call, deadline)
        answer, connection = await self._begin_stream(call, credential, deadline)
        if answer.status == 401:
            other = await self._other(call, credential, deadline)
            if other is not None:
                self._end_stream(connection)
                answer, connection = await self._begin_stream(call, other, deadline)
        if connection.lines is None:
            self._end_stream(connection)
            raise self._failure(call, answer)
        return connection, connection.lines

    async def _begin_stream(
        self, call: Call, credential: Credential, deadline: float
    ) -> tuple[Answer, Connection]:
        if self._is_closed:
            raise Unreachable(self.attempted(call), "this client is closed", maybe_done=False)
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
            raise Unreachable(self.attempted(call), "no connection in time", maybe_done=False) from None
        except BrokenMessage as broken:
            raise self._unreachable(call, broken) from broken.__cause__
        finally:
            if connection is not None and not isinstance(answer, Answer):
                self._end_stream(connection)
            self._observe(answer.status if isinstance(answer, Answer) else None, call, begun)
        if isinstance(answer, BrokenMessage):
            raise self._unreachable(call, answer)
        return answer, connection

    def _end_stream(self, connection: Connection) -> None:
        connection.abort()
        self._streams.discard(connection)

    async def _renewed(self, call: Call, deadline: float) -> Credential:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.cluster.credentials.renewed()
        except TimeoutError:
            reason = f"no credentials in time ({self.cluster.user})"
            raise Unreachable(self.attempted(call), reason, maybe_done=False) from None

    async def _other(self, call: Call, refused: Credential, deadline: float) -> Credential | None:
        """Credentials other than *refused*, if the source has any."""
        credentials = self.cluster.credentials
        credentials.reject(refused)
        credential = credentials.current() or await self._renewed(call, deadline)
        return None if credential == refused else credential

    def _request_bytes(self, call: Call, credential: Credential) -> bytes:
        if self._head is None or self._head[0] is not credential:
            self._head = (credential, self._static_head(credential))
        query = _encoded(tuple(call.query.items())) if call.query else ""
        head = (
            f"{call.method} {self.cluster.endpoint.base_path}{call.path}{query} HTTP/1.1\r\n{self._head[1]}"
            f"Accept: {call.accept}\r\n"
        )
        body = call.body
        if body is None:
            # servers since 1.37 compress watches, too, if they may; nobody gains by it
            encoding = "identity" if call.is_stream else "gzip"
            return f"{head}Accept-Encoding: {encoding}\r\n\r\n".encode("latin-1")
        return (
            f"{head}Content-Type: {call.content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode(
                "latin-1"
            )
            + body
        )

    def _static_head(self, credential: Credential) -> str:
        lines = [f"Host: {self.cluster.endpoint.authority}", f"User-Agent: {self._user_agent}"]
        if credential.authorization:
            lines.append(f"Authorization: {credential.authorization}")
        lines.extend(f"{name}: {value}" for name, value in self.cluster.impersonation)
        return "".join(f"{line}\r\n" for line in lines)

    def _failure(self, call: Call, answer: Answer) -> ApiError:
        return answers.failure(self.attempted(call), answer, now=self._clock.wall())

    def _unreachable(self, call: Call, broken: BrokenMessage) -> Unreachable:
        return Unreachable(self.attempted(call), broken.reason, maybe_done=broken.sent)


@functools.lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """*query* as it follows a path: thousands of patches in a row have the same one."""
    return "?" + urlencode(query)
