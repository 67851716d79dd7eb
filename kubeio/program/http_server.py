"""HTTP/1.1 server: whole requests in, an answer or a stream out, limits per client.

Owns sockets, framing, and limits of connections, bytes and time. Knows nothing of paths, access or TLS certificates:
the handler decides what is answered, and the TLS context may be given another certificate at any time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import httptools
import structlog

from kubeio.errors import InputError

if TYPE_CHECKING:
    import ssl

TEXT: Final = "text/plain; charset=utf-8"
READ_METHODS: Final = ("GET", "HEAD")
_log = structlog.get_logger("kubeio")
_MAX_HEAD_BYTES: Final = 16 * 1024
_HANDSHAKE_S: Final = 5.0


class HttpRequest(NamedTuple):
    """One request. Names of *headers* are in lower case; *peer* is the client's address."""

    method: str
    path: str
    """Not decoded, without the query."""
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    peer: str = ""


class Reply(NamedTuple):
    """One answer; *headers* beside those that every answer has."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Stream(NamedTuple):
    """An answer of unknown length: *send* pushes to the connection until it ends or is cancelled."""

    content_type: str
    send: Callable[[ServerConnection], Awaitable[None]]


Handler = Callable[[HttpRequest], Awaitable[Reply | Stream]]
"""Cancelled when the client leaves. An exception is a 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on untrusted clients. *held_bytes*: bodies of all requests under way together."""

    connections: int = 100
    body_bytes: int = 0
    held_bytes: int = 0
    patience_s: float = 15.0
    """To send a whole request, and to fetch an answer; also how long an idle connection is kept."""


class HttpServer:
    """Serves *handler* on *bind*:*port* while the scope lasts; `port` is known inside. An empty *bind*: everywhere.

    Requests of one connection are answered in order. Methods other than *methods* are a 405.
    Raises InputError naming *flag* if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        handler: Handler,
        *,
        flag: str,
        tls: ssl.SSLContext | None = None,
        methods: tuple[str, ...] = READ_METHODS,
        limits: Limits | None = None,
    ) -> None:
        self.bind: Final = bind
        self.port = port
        self.methods: Final = methods
        self.limits: Final = limits or Limits()
        self.connections: set[ServerConnection] = set()
        self.held_bytes = 0
        self._handler = handler
        self._flag = flag
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: ServerConnection(self),
                **_place(self.bind, self.port),
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_S if self._tls is not None else None,
            )
        except socket.gaierror as error:
            remedy = "name an address of this machine, such as 127.0.0.1"
            raise InputError(
                self._flag, f"{self.bind}:{self.port}", "names a host that is not known", remedy
            ) from error
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else error
            raise InputError(
                self._flag,
                f"{self.bind}:{self.port}",
                f"cannot be listened on ({reason})",
                "choose a free port, or 0 for any",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        # what ended the block is the block's: only the answers under way are waited for here
        await self._tasks.__aexit__(None, None, None)
        if self._tls is None:
            # a client in the middle of its handshake would hold the end up for _HANDSHAKE_S
            await self._server.wait_closed()

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self.limits.connections

    def start(self, connection: ServerConnection, request: HttpRequest) -> asyncio.Task[None]:
        return self._tasks.create_task(self._answer(connection, request), name=f"answer {request.path}")

    async def _answer(self, connection: ServerConnection, request: HttpRequest) -> None:
        try:
            reply = await self._handler(request)
        except Exception as error:
            # a handler that fails must neither end the process nor keep its client waiting
            _log.exception("request failed", path=request.path)
            reply = Reply(500, f"{type(error).__name__}\n".encode())
        if isinstance(reply, Reply):
            connection.answer(reply)
            return
        try:
            await connection.stream(reply)
        except Exception:
            _log.exception("stream failed", path=request.path)
            connection.abort()


class _Pending(NamedTuple):
    request: HttpRequest
    is_last: bool


class ServerConnection(asyncio.Protocol):
    """One client. Not read from while a second request of its waits; cut when it takes too long itself."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[_Pending] = deque()
        self._running: tuple[_Pending, asyncio.Task[None]] | None = None
        self._refusal: Reply | None = None
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._unparsed_bytes = 0
        self._is_streaming = False
        self.is_backed_up = False
        """The client does not fetch what was sent: a stream should wait, or leave things out."""

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the type
        self._transport = cast(asyncio.Transport, transport)
        self._start_deadline()
        if self._server.is_full:
            self._refuse(503, "too many connections")
        else:
            self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._stop_deadline()
        self._transport = None
        for pending in self._waiting:
            self._server.held_bytes -= len(pending.request.body)
        self._waiting.clear()
        self._drop_body()
        if self._running is not None:
            pending, task = self._running
            self._running = None
            self._server.held_bytes -= len(pending.request.body)
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self._is_closing():
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

    def pause_writing(self) -> None:
        """Read nothing more from a client that does not fetch what it asked for."""
        self.is_backed_up = True
        self._read_if_idle()
        if self._is_streaming:
            self._start_deadline()

    def resume_writing(self) -> None:
        self.is_backed_up = False
        if self._running is None:
            self._start_next()
        else:
            self._stop_deadline()
        self._read_if_idle()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        length = self._headers.get("content-length", "0")
        if self._method not in self._server.methods:
            self._refuse(405, f"only {' and '.join(self._server.methods)}")
        elif not length.isdecimal() or int(length) > self._limits.body_bytes:
            self._refuse(413, "the body is too large")
        elif self._headers.get("expect", "").lower() == "100-continue" and self._running is None:
            self.push(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, chunk: bytes) -> None:
        if self._refusal is not None:
            return
        if len(self._body) + len(chunk) > self._limits.body_bytes:
            self._refuse(413, "the body is too large")
        elif self._server.held_bytes + len(chunk) > self._limits.held_bytes:
            self._refuse(503, "too much is being asked")
        else:
            self._body += chunk
            self._server.held_bytes += len(chunk)

    def on_message_complete(self) -> None:
        if self._refusal is not None or self._transport is None:
            return
        path, _, query = self._target.decode("latin-1").partition("?")
        peer = self._transport.get_extra_info("peername")
        request = HttpRequest(
            self._method, path, query, self._headers, bytes(self._body), str(peer[0]) if peer else ""
        )
        self._waiting.append(_Pending(request, not self._parser.should_keep_alive()))
        self._target, self._headers, self._body = b"", {}, bytearray()
        self._unparsed_bytes = 0
        if self._running is None:
            self._start_next()
        else:
            self._read_if_idle()

    # -- answers

    def answer(self, reply: Reply) -> None:
        """Send *reply* to the request under way, and go on with the next one."""
        if self._running is None:
            return
        (request, is_last), _ = self._running
        self._running = None
        self._server.held_bytes -= len(request.body)
        # an unauthenticated client keeps no connection
        self._send(reply, is_head=request.method == "HEAD", is_last=is_last or reply.status == 401)
        self._start_next()

    async def stream(self, stream: Stream) -> None:
        """Send *stream* to the request under way; the connection ends with it."""
        if self._running is None or self._is_closing():
            return
        if self._running[0].request.method == "HEAD":
            self.answer(Reply(200, b"", stream.content_type))
            return
        self._is_streaming = True
        self.push(_head(200, stream.content_type, "Connection: close"))
        await stream.send(self)
        if self._transport is not None:
            self._transport.close()

    def push(self, data: bytes) -> None:
        """More of the stream. A client that fetches nothing for `Limits.patience_s` is cut."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # -- inside

    @property
    def _method(self) -> str:
        return str(self._parser.get_method().decode("latin-1"))

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _start_next(self) -> None:
        """Answer the oldest request that waits; with none, send the refusal or read on."""
        self._start_deadline()
        if self._is_closing() or self.is_backed_up:
            return
        if self._waiting:
            self._stop_deadline()
            pending = self._waiting.popleft()
            self._running = pending, self._server.start(self, pending.request)
        elif self._refusal is not None:
            self._send(self._refusal, is_last=True)
        self._read_if_idle()

    def _read_if_idle(self) -> None:
        """Read on, unless answers are not fetched or a request waits behind the one under way.

        While a single request is under way, reading goes on: otherwise a client that leaves would not be noticed.
        """
        if self._transport is None or self._transport.is_closing():
            return
        if self.is_backed_up or self._waiting:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _refuse(self, status: int, why: str) -> None:
        """Answer with *why* after the requests before, then close. Later input of this client is ignored."""
        if self._refusal is None:
            self._refusal = Reply(status, f"{why}\n".encode())
            self._drop_body()
            if self._running is None:
                self._start_next()

    def _send(self, reply: Reply, *, is_head: bool = False, is_last: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [f"Content-Length: {len(reply.body)}", *(f"{name}: {value}" for name, value in reply.headers)]
        if reply.status == 405:
            lines.append(f"Allow: {', '.join(self._server.methods)}")
        if reply.status == 401:
            lines.append("WWW-Authenticate: Bearer")
        if is_last:
            lines.append("Connection: close")
        self._transport.write(
            _head(reply.status, reply.content_type, *lines) + (b"" if is_head else reply.body)
        )
        if is_last:
            self._transport.close()

    def _drop_body(self) -> None:
        self._server.held_bytes -= len(self._body)
        self._body = bytearray()

    def _start_deadline(self) -> None:
        """Cut the client after `Limits.patience_s`: it has to send or to fetch something."""
        self._stop_deadline()
        self._deadline = asyncio.get_running_loop().call_later(self._limits.patience_s, self.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _head(status: int, content_type: str, *lines: str) -> bytes:
    common = ("Cache-Control: no-store", "X-Content-Type-Options: nosniff")
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join((first, f"Content-Type: {content_type}", *common, *lines, "", "")).encode("latin-1")


def _place(host: str, port: int) -> dict[str, Any]:
    """Arguments of `create_server`. Every interface is one socket for IPv4 and IPv6: a pod may have either."""
    if host:
        return {"host": host, "port": port}
    if socket.has_dualstack_ipv6():
        return {"sock": socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)}
    return {"host": "0.0.0.0", "port": port}


def parse_bind(field: str, bind: str) -> tuple[str, int]:
    """Host and port of *bind*: `host:port` or `[v6]:port`; an empty host is every interface, IPv4 and IPv6.

    Raises: InputError naming *field*.
    """
    host, colon, port = bind.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        remedy = "write HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081; port 0 picks a free one"
        raise InputError(field, bind, "is not an address", remedy)
    return bare, int(port)


def write_port(path: Path | None, port: int, *, flag: str = "--probes-port-file") -> None:
    """Make *port* known in one step: readers never see half a file.

    Raises: InputError naming *flag* if *path* cannot be written to.
    """
    if path is None:
        return
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(f"{port}\n")
        fresh.replace(path)
    except OSError as error:
        raise InputError(
            flag,
            str(path),
            f"cannot be written to ({error.strerror})",
            "name a file in a folder that exists",
        ) from None
