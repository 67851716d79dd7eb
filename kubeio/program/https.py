"""POST over TLS: whole requests in, whole answers out, each within limits.

Owns sockets, framing and what a caller may cost: connections, bytes, time. Knows nothing of what is asked: that is the
handler's, which never has to fail (an exception is a 500). The TLS context is the caller's and may be given another
certificate at any time; the next handshake uses it. Started by the sharder's admission webhook.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import httptools
import structlog

from kubeio.program.listening import listen

if TYPE_CHECKING:
    import ssl

_log = structlog.get_logger("kubeio")
_MAX_HEAD_BYTES: Final = 16 * 1024
_HANDSHAKE_S: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Reply(NamedTuple):
    """One answer: a status that `PostServer` knows, and its body."""

    status: int
    body: bytes
    content_type: str = _TEXT


Handler = Callable[[str, bytes], Awaitable[Reply]]
"""The path without its query, and the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on untrusted clients. *held_bytes*: bodies of all requests under way together."""

    connections: int = 256
    body_bytes: int = 4 * 1024 * 1024
    held_bytes: int = 32 * 1024 * 1024
    patience_s: float = 15.0
    """To send a whole request, and to fetch an answer; also how long an idle connection is kept."""


class PostServer:
    """Serves *handler* on *bind*:*port* while the scope lasts; `port` is known inside.

    Requests of one connection are answered in order. Raises InputError naming *flag* if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        handler: Handler,
        tls: ssl.SSLContext,
        *,
        flag: str,
        limits: Limits | None = None,
    ) -> None:
        self.bind: Final = bind
        self.port = port
        self.limits: Final = limits or Limits()
        self.connections: set[_Connection] = set()
        self.held_bytes = 0
        self._handler = handler
        self._tls = tls
        self._flag = flag
        self._server: asyncio.Server | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> PostServer:
        self._server = await listen(
            lambda: _Connection(self),
            self.bind,
            self.port,
            flag=self._flag,
            tls=self._tls,
            handshake_s=_HANDSHAKE_S,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        # what ended the block is the block's: only the answers under way are waited for here
        await self._tasks.__aexit__(None, None, None)

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self.limits.connections

    def start(self, connection: _Connection, path: str, body: bytes) -> asyncio.Task[None]:
        return self._tasks.create_task(self._answer(connection, path, body), name=f"answer {path}")

    async def _answer(self, connection: _Connection, path: str, body: bytes) -> None:
        try:
            reply = await self._handler(path, body)
        except Exception as error:
            # a handler that fails must neither end the process nor keep its caller waiting
            _log.exception("request failed", path=path)
            reply = Reply(500, f"{type(error).__name__}\n".encode())
        connection.answer(reply)


class _Request(NamedTuple):
    path: str
    body: bytes
    is_last: bool


class _Connection(asyncio.Protocol):
    """One caller. Not read from while a second request of its waits; cut when it takes too long itself."""

    def __init__(self, server: PostServer) -> None:
        self._server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[_Request] = deque()
        self._running: tuple[_Request, asyncio.Task[None]] | None = None
        self._target = b""
        self._body = bytearray()
        self._unparsed_bytes = 0
        self._expects_continue = False
        self._is_refused = False

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the type
        self._transport = cast(asyncio.Transport, transport)
        self._wait()
        if self._server.is_full:
            self._refuse(503, "too many connections")
        else:
            self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._stop_waiting()
        self._is_refused = True
        for request in self._pending:
            self._server.held_bytes -= len(request.body)
        self._pending.clear()
        self._drop_body()
        if self._running is not None:
            request, task = self._running
            self._running = None
            self._server.held_bytes -= len(request.body)
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unparsed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "no upgrades")
        except httptools.HttpParserError:
            self._refuse(400, "not HTTP/1.1")
        else:
            if self._unparsed_bytes - len(self._body) > _MAX_HEAD_BYTES:
                self._refuse(431, "the head is too large")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length" if not value.isdigit() or int(value) > self._limits.body_bytes:
                self._refuse(413, "the body is too large")
            case b"expect":
                self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            self._refuse(405, "only POST")
        elif self._expects_continue and not self._is_refused and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, chunk: bytes) -> None:
        if self._is_refused:
            return
        if len(self._body) + len(chunk) > self._limits.body_bytes:
            self._refuse(413, "the body is too large")
        elif self._server.held_bytes + len(chunk) > self._limits.held_bytes:
            self._refuse(503, "too much is being asked")
        else:
            self._body += chunk
            self._server.held_bytes += len(chunk)

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        path = self._target.decode("latin-1").partition("?")[0]
        request = _Request(path, bytes(self._body), not self._parser.should_keep_alive())
        self._target, self._body = b"", bytearray()
        self._unparsed_bytes = 0
        self._expects_continue = False
        self._pending.append(request)
        if self._running is None:
            self._start_next()
        elif self._transport is not None:
            self._transport.pause_reading()  # not before: one who leaves would not be noticed

    # -- inside

    def _start_next(self) -> None:
        """Answer the oldest request that waits; with none, read on."""
        if self._transport is None or self._transport.is_closing():
            return
        if not self._pending:
            self._wait()
            self._transport.resume_reading()
            return
        self._stop_waiting()
        request = self._pending.popleft()
        self._running = request, self._server.start(self, request.path, request.body)

    def answer(self, reply: Reply) -> None:
        """Called by the server when the request under way has its answer."""
        if self._running is None:
            return
        request, _ = self._running
        self._running = None
        self._server.held_bytes -= len(request.body)
        self._send(reply, is_last=request.is_last)
        self._start_next()

    def _refuse(self, status: int, why: str) -> None:
        """Say *why* and hang up: what else this caller sends is not looked at."""
        if not self._is_refused:
            self._is_refused = True
            self._drop_body()
            self._send(Reply(status, f"{why}\n".encode()), is_last=True)

    def _send(self, reply: Reply, *, is_last: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(reply.body)}\r\nCache-Control: no-store\r\n"
            + ("Allow: POST\r\n" if reply.status == 405 else "")
            + ("Connection: close\r\n" if is_last else "")
            + "\r\n"
        )
        self._transport.write(head.encode("latin-1") + reply.body)
        if is_last:
            self._transport.close()

    def _drop_body(self) -> None:
        self._server.held_bytes -= len(self._body)
        self._body = bytearray()

    def _wait(self) -> None:
        """From now on it is the caller's turn."""
        self._stop_waiting()
        self._deadline = asyncio.get_running_loop().call_later(self._limits.patience_s, self.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
