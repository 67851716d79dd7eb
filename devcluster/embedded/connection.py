"""One client connection: bytes to requests, answers to bytes, one at a time and in order.

Parsing is httptools'. The `Handler` answers requests; it may make the connection a watch stream.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from http import HTTPStatus
from typing import Final, Protocol, cast
from urllib.parse import parse_qsl

import httptools
import msgspec

from devcluster.embedded.endpoints import Answer
from devcluster.embedded.status import Refusal, bad_request, too_large_body
from devcluster.embedded.streams import WatchStream

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
_GZIP_BYTES: Final = range(128 * 1024, 16 * 1024 * 1024)
"""Smaller is not worth it; larger would block the event loop, and with it renewals of Leases, for a second."""


class RawRequest(msgspec.Struct):
    """A request as it came."""

    method: str
    target: str
    """Path and query as they came."""
    path: str
    query: dict[str, str]
    headers: dict[bytes, bytes]
    body: bytes

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")


class Handler(Protocol):
    """Answers requests."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, request: RawRequest) -> None:
        """Answer by `connection.answer`, `.refuse` or `.stream`."""


class Connection(asyncio.Protocol):
    """Lives as long as the TCP connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler: Final = handler
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._requests: deque[RawRequest] = deque()
        self._current: RawRequest | None = None
        self._keep_alive = True
        self._url: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.watch: WatchStream | None = None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._transport.set_write_buffer_limits(high=1024 * 1024)
        self._handler.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.watch is not None:
            self.watch.abandon()
        self._transport = None
        self._handler.closed(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._write(Answer(bad_request(f"malformed HTTP: {error}").body(), 400), {})
            self.close()

    def pause_writing(self) -> None:
        if self.watch is not None:
            self.watch.pause()

    def resume_writing(self) -> None:
        if self.watch is not None:
            self.watch.resume()

    # httptools

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._body_bytes = [], {}, [], 0

    def on_url(self, url: bytes) -> None:
        self._url.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        known = self._headers.get(lowered)
        self._headers[lowered] = value if known is None else known + b"," + value

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= MAX_BODY_BYTES:
            self._body.append(body)

    def on_message_complete(self) -> None:
        target = b"".join(self._url).decode("utf-8", "surrogateescape")
        path, _, query = target.partition("?")
        request = RawRequest(
            method=self._parser.get_method().decode(),
            target=target,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)) if query else {},
            headers=self._headers,
            body=b"".join(self._body),
        )
        self._keep_alive = self._parser.should_keep_alive()
        self._requests.append(request)
        if self._body_bytes > MAX_BODY_BYTES:
            self._current = self._requests.pop()
            self.refuse(too_large_body(MAX_BODY_BYTES))
            self.close()
            return
        self._next()

    # for the handler

    def answer(self, answer: Answer) -> None:
        """Answer the current request whole, then go on with the next."""
        request, self._current = self._current, None
        if request is None or self._transport is None:
            return
        self._write(answer, request.headers, head_only=request.method == "HEAD")
        if not self._keep_alive:
            self.close()
        self._next()

    def refuse(self, refusal: Refusal) -> None:
        """Answer the current request with a failure."""
        request, self._current = self._current, None
        if request is None or self._transport is None:
            return
        retry = b"" if refusal.retry_after_s is None else b"Retry-After: %d\r\n" % refusal.retry_after_s
        media = "text/plain; charset=utf-8" if refusal.plain else "application/json"
        self._write(Answer(refusal.body(), refusal.code, media), {}, extra=retry)
        self._next()

    def stream(self, stream: WatchStream) -> None:
        """The current request is a watch: *stream* writes from now on."""
        self.watch = stream
        stream.start()

    def stream_ended(self) -> None:
        """The watch was answered to its end: the connection is free for the next request."""
        self.watch = self._current = None
        if not self._keep_alive:
            self.close()
        self._next()

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    def close(self) -> None:
        """Close after what is written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Cut, at once."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        """Hand the next request over, if none is under way."""
        while self._current is None and self._requests and self._transport is not None:
            self._current = self._requests.popleft()
            self._handler.handle(self, self._current)

    def _write(
        self, answer: Answer, headers: dict[bytes, bytes], *, extra: bytes = b"", head_only: bool = False
    ) -> None:
        if self._transport is None:
            return
        body = answer.body
        if len(body) in _GZIP_BYTES and b"gzip" in headers.get(b"accept-encoding", b""):
            body = gzip.compress(body, 1)
            extra += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
        for warning in answer.warnings:
            extra += b'Warning: 299 - "%s"\r\n' % warning.replace('"', '\\"').encode()
        head = b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n" % (
            answer.code,
            HTTPStatus(answer.code).phrase.encode(),
            answer.content_type.encode(),
            len(body),
            extra,
        )
        self._transport.write(head if head_only else head + body)
