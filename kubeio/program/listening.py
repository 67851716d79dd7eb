"""A small HTTP server: GET and HEAD only, nothing is ever read from a body; an answer, or a stream that goes on.

Owns sockets, framing and what a stranger may cost: connections, bytes, time. Knows nothing of what is asked: that is
`kubeio.program.server`'s (probes, metrics, debug pages) and `kubeio.program.page_server`'s (a live page).
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

import httptools

from kubeio.errors import InputError
from kubeio.program.access_gate import RequestOrigin

if TYPE_CHECKING:
    import ssl

PATIENCE_S: Final = 15.0
"""To send a whole request, and to fetch an answer; also how long an idle connection is kept."""
MAX_CONNECTIONS: Final = 100
TEXT: Final = "text/plain; charset=utf-8"
NOBODY: Final = RequestOrigin()
_MAX_HEAD_BYTES: Final = 16 * 1024
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


async def listen(
    factory: Callable[[], asyncio.Protocol],
    bind: str,
    port: int,
    *,
    flag: str,
    tls: ssl.SSLContext | None = None,
    handshake_s: float | None = None,
) -> asyncio.Server:
    """A server on *bind*:*port*. Raises InputError naming *flag* if the address is taken."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(factory, bind, port, ssl=tls, ssl_handshake_timeout=handshake_s)
    except OSError as error:
        raise InputError(
            flag,
            f"{bind}:{port}",
            f"cannot be listened on ({os.strerror(error.errno).lower() if error.errno else error})",
            "choose a free port, or 0 for any",
        ) from error


class Reply(NamedTuple):
    """One answer; *headers* beside those that every answer has."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class HttpServer(ABC):
    """Listens on *bind*:*port* while the scope lasts; `port` is known inside.

    Raises InputError naming *flag* if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        *,
        flag: str,
        patience_s: float = PATIENCE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.bind: Final = bind
        self.port = port
        self.patience_s: Final = patience_s
        self.connections: set[ServerConnection] = set()
        self._flag = flag
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._tasks = asyncio.TaskGroup()

    @abstractmethod
    def answer(self, method: str, target: str, accept: str, visitor: RequestOrigin = NOBODY) -> Reply | None:
        """The answer to one request; None if it takes longer: see `ask`."""

    @abstractmethod
    def ask(self, connection: ServerConnection, target: str, visitor: RequestOrigin) -> asyncio.Task[None]:
        """A task that answers *connection* or streams to it; cancelled when the connection is lost."""

    async def __aenter__(self) -> Self:
        self._server = await listen(lambda: ServerConnection(self), self.bind, self.port, flag=self._flag)
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
            # what ended the block is the block's: only visitors who are being asked about are waited for here
            await self._tasks.__aexit__(None, None, None)
            await self._server.wait_closed()

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self._max_connections


class ServerConnection(asyncio.Protocol):
    """One client. Cut when it has not sent a whole request, or not fetched its answer, in time."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self._target = b""
        self._accept = ""
        self._has_body = False
        self._visitor = NOBODY
        self._asking: asyncio.Task[None] | None = None
        self._is_asked_for_head = False
        self._is_streaming = False
        self.is_backed_up = False
        """The client does not fetch what was sent: a stream should wait, or leave things out."""

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the type
        self._transport = cast(asyncio.Transport, transport)
        self._wait_again()
        if self._server.is_full:
            self._send(Reply(503, TEXT, b"too many connections\n"), is_last=True)
        else:
            self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._asking is not None:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._send(Reply(400, TEXT, b"no upgrades\n"), is_last=True)
        except httptools.HttpParserError:
            self._send(Reply(400, TEXT, b"not HTTP/1.1\n"), is_last=True)
        else:
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._send(Reply(431, TEXT, b"the request is too large\n"), is_last=True)

    def pause_writing(self) -> None:
        """The client does not fetch what it asked for: ask it nothing more until it does."""
        self.is_backed_up = True
        if self._transport is not None:
            self._transport.pause_reading()
            if self._is_streaming:
                self._wait_again()

    def resume_writing(self) -> None:
        self.is_backed_up = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            if self._is_streaming:
                self._wait_for_ever()
            else:
                self._wait_again()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"accept":
                self._accept = value.decode("latin-1")
            case b"content-length":
                self._has_body = value.strip() != b"0"
            case b"transfer-encoding":
                self._has_body = True
            case b"host":
                self._visitor = self._visitor._replace(host=value.decode("latin-1"))
            case b"authorization":
                self._visitor = self._visitor._replace(authorization=value.decode("latin-1"))
            case b"forwarded" | b"x-forwarded-for" | b"x-forwarded-host" | b"x-real-ip":
                self._visitor = self._visitor._replace(is_forwarded=True)
            case b"sec-fetch-site":
                self._visitor = self._visitor._replace(fetch_site=value.decode("latin-1"))
            case b"sec-fetch-mode":
                self._visitor = self._visitor._replace(fetch_mode=value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        if self._asking is not None or self._transport is None:
            return
        method = self._parser.get_method().decode("latin-1")
        if self._has_body and method in ("GET", "HEAD"):
            self._send(Reply(400, TEXT, b"no body is read\n"), is_last=True)
            return
        target = self._target.decode("latin-1")
        peer = self._transport.get_extra_info("peername")
        visitor = self._visitor._replace(address=str(peer[0]) if peer else "")
        reply = self._server.answer(method, target, self._accept, visitor)
        if reply is None:
            self._asking, self._is_asked_for_head = self._server.ask(self, target, visitor), method == "HEAD"
            return
        is_last = reply.status in (401, 405) or not self._parser.should_keep_alive()
        self._send(reply, is_head=method == "HEAD", is_last=is_last)

    def on_message_complete(self) -> None:
        self._target = b""
        self._accept = ""
        self._has_body = False
        self._visitor = NOBODY
        self._head_bytes = 0
        self._wait_again()

    def answer(self, reply: Reply) -> None:
        """Called by the server when the visitor has been asked about. Whatever came meanwhile is not looked at."""
        self._asking = None
        self._send(reply, is_head=self._is_asked_for_head, is_last=True)

    def begin_stream(self, content_type: str) -> bool:
        """An answer without an end, for one whom `ask` was called for; False if there is nobody to `push` to."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self._is_asked_for_head:
            self.answer(Reply(200, content_type, b""))
            return False
        self._is_streaming = True
        self._wait_for_ever()
        self._transport.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n".encode("latin-1")
        )
        return True

    def push(self, data: bytes) -> None:
        """More of the stream. A client that fetches nothing for the server's patience is cut."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # -- inside

    def _wait_for_ever(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _wait_again(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(self._server.patience_s, self.abort)

    def _send(self, reply: Reply, *, is_head: bool = False, is_last: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(reply.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
            + ("Allow: GET, HEAD\r\n" if reply.status == 405 else "")
            + ("WWW-Authenticate: Bearer\r\n" if reply.status == 401 else "")
            + ("Connection: close\r\n" if is_last else "")
            + "\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if is_head else reply.body))
        if is_last:
            self._transport.close()
