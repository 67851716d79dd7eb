"""One client's connection through the fault proxy, and the proxy's own to the server: one request at a time, in order.

Requests are read whole, answers pass as bytes. The `Handler` decides what happens to each request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from http import HTTPStatus
from typing import Final, Protocol, cast
from urllib.parse import parse_qsl

import httptools

from kubeio.rest.request_info import BadTarget, RequestInfo, is_true, request_info

_END_OF_HEAD: Final = b"\r\n\r\n"


class Request:
    """A request as it came."""

    def __init__(self, method: str, url: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.user = ""
        path, _, query = url.decode("latin-1").partition("?")
        self.path = path
        self.query = dict(parse_qsl(query, keep_blank_values=True)) if query else {}

    @cached_property
    def info(self) -> RequestInfo:
        try:
            return request_info(self.method, self.url.decode("utf-8", "surrogateescape"))
        except BadTarget:
            return RequestInfo(self.method.lower(), self.path)

    @property
    def is_watch(self) -> bool:
        return is_true(self.query.get("watch"))

    def header(self, name: bytes) -> bytes:
        return next((value for known, value in self.headers if known.lower() == name), b"")


class Handler(Protocol):
    """Decides what happens to requests."""

    def opened(self, tunnel: Tunnel) -> None: ...
    def closed(self, tunnel: Tunnel) -> None: ...
    def handle(self, tunnel: Tunnel, request: Request) -> None: ...
    async def connect(self, protocol: asyncio.Protocol) -> None: ...


class Tunnel(asyncio.Protocol):
    """The client's side; lives as long as its connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler: Final = handler
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._server: _ServerSide | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._requests: deque[Request] = deque()
        self._keep_alive = True
        self._delay_s = 0.0
        self._is_silent = False
        self._hides_end = False
        self._is_ended = False
        self._held: list[Callable[[], None]] | None = None
        """Deliveries that wait for the end of a hold; None without one."""
        self._holds_request = False
        self.current: Request | None = None
        """The request under way."""
        self.user = ""
        self.user_agent = ""
        self.on_message_begin()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._handler.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._held is None:  # otherwise the request that waits is still delivered
            self._end()

    def _end(self) -> None:
        self._is_ended = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._server is not None:
            self._server.abort()
        self._handler.closed(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def pause_writing(self) -> None:
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        if self._server is not None:
            self._server.resume_reading()

    # httptools

    def on_message_begin(self) -> None:
        self._url: list[bytes] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        self._keep_alive = self._parser.should_keep_alive()
        self._requests.append(Request(method, b"".join(self._url), self._headers, b"".join(self._body)))
        self._next()

    # for the handler

    def answer(self, code: int, body: bytes, retry_after_s: int | None = None) -> None:
        """Answer the request under way without the server."""
        if self._transport is None:
            self._end()
            return
        retry = b"" if retry_after_s is None else b"Retry-After: %d\r\n" % retry_after_s
        reason = HTTPStatus(code).phrase.encode()
        head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
        self._transport.write(head % (code, reason, retry, len(body)) + body)
        self.finish()

    def pass_on(self, data: bytes, *, is_lost: bool = False, is_muted: bool = False) -> None:
        """Send the request under way to the server as *data*.

        *is_lost*: reset the connection when the server answers; *is_muted*: pass on only the head of the answer.
        """
        if self.current is None or self._is_silent or self._is_ended:
            return
        is_lost = is_lost or self._transport is None
        exchange = _Exchange(self.current.method == "HEAD", is_lost=is_lost, is_muted=is_muted)
        if self._server is not None:
            self._server.send(data, exchange)
            return
        self._server = _ServerSide(self)
        self._connecting = asyncio.get_running_loop().create_task(
            self._connect(self._server, data, exchange), name="connect with the server"
        )

    async def _connect(self, server: _ServerSide, data: bytes, exchange: _Exchange) -> None:
        try:
            await self._handler.connect(server)
        except OSError:
            self.abort()
        else:
            server.send(data, exchange)

    def mute(self, *, hides_end: bool = False) -> None:
        """Drop everything from the server; with *hides_end* the connection stays open after the server closed it."""
        self._is_silent = True
        self._hides_end = self._hides_end or hides_end

    def slow_down(self, delay_s: float) -> None:
        """Delay everything from the server by *delay_s*, until the answer is complete."""
        self._delay_s = delay_s

    def hold(self, request: Callable[[], None] | None = None) -> None:
        """Keep what the server sends, and the call that passes the *request* under way on, until `release`."""
        self._held = self._held if self._held is not None else []
        if request is not None:
            self._held.append(request)
            self._holds_request = True

    def release(self) -> None:
        """Deliver what is held, in order."""
        held, self._held = self._held or [], None
        for deliver in held:
            deliver()
        if self._transport is None and not self._holds_request:
            self._end()
        self._holds_request = False

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()
        else:
            self._end()

    # for the server's side

    def deliver(self, data: bytes) -> None:
        self._after_delay(self._write, data)

    def finish(self) -> None:
        """The answer is complete: go on with the next request."""
        self._after_delay(self._finish)

    def server_lost(self) -> None:
        """The server has closed its side."""
        self._after_delay(self._server_lost)

    def _after_delay(self, call: Callable[..., None], *arguments: bytes) -> None:
        if self._held is not None:
            self._held.append(partial(call, *arguments))
        elif self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, call, *arguments)
        else:
            call(*arguments)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_silent:
            self._transport.write(data)

    def _finish(self) -> None:
        if self._is_silent:
            return
        if not self._keep_alive and not self._requests and self._transport is not None:
            self._transport.close()
        self.current = None
        self._delay_s = 0.0
        self._next()

    def _server_lost(self) -> None:
        if self._transport is None:
            self._end()
        elif self._hides_end:
            return
        elif self.current is None and not self._is_silent:
            self._transport.close()
        else:
            self._transport.abort()

    def _next(self) -> None:
        while self.current is None and self._requests and self._transport is not None and not self._is_silent:
            self.current = request = self._requests.popleft()
            self._handler.handle(self, request)
            self.user = request.user
            self.user_agent = request.header(b"user-agent").decode("latin-1")


class _Exchange:
    """How one answer is passed on."""

    def __init__(self, is_head: bool, *, is_lost: bool, is_muted: bool) -> None:
        self.is_head = is_head
        self.is_lost = is_lost
        self.is_muted = is_muted


class _ServerSide(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel: Final = tunnel
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange = _Exchange(False, is_lost=False, is_muted=False)
        self._is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_aborted:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tunnel.server_lost()

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange.is_lost:
            self._tunnel.abort()
            return
        if exchange.is_muted:
            head, end, _ = data.partition(_END_OF_HEAD)
            self._tunnel.deliver(head + end)
            if end:
                self._tunnel.mute()
            return
        self._tunnel.deliver(data)
        if exchange.is_head:
            if data.endswith(_END_OF_HEAD):
                self.on_message_complete()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._tunnel.abort()

    def on_message_complete(self) -> None:
        self._tunnel.finish()

    def send(self, data: bytes, exchange: _Exchange) -> None:
        if self._transport is None:
            self._tunnel.abort()
            return
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(data)

    def abort(self) -> None:
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
