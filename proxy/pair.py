"""One connection of a client, paired with one connection to the server: requests are read whole, answers pass as bytes.

Owns the client's socket, the framing of its requests, and what its loss means for the other connection. Knows no
Kubernetes: a `Handler` decides about each request. One request at a time; a client that sends the next one before the
answer is cut off.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

import httptools

from proxy.aliased_answer import AliasedAnswer
from proxy.headers import Header, Request
from proxy.server_side import BUFFERED_BYTES, OnEnd, ServerSide

MAX_HEAD_BYTES: Final = 256 * 1024
MAX_BODY_BYTES: Final = 16 * 1024**2
"""The API server takes 3 MiB."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class Handler(Protocol):
    """Decides what happens to requests: each is answered or forwarded, or its pair is cut."""

    def opened(self, pair: Pair) -> None: ...
    def closed(self, pair: Pair) -> None:
        """Both sockets are gone."""

    def handle(self, pair: Pair, request: Request) -> None:
        """*request* is complete: `pair.answer` or `pair.forward` must follow, now or later."""

    def hung_up(self, pair: Pair) -> None:
        """The client is gone; *pair* may still await an answer."""

    def answered(self, pair: Pair, status: int) -> None:
        """The head of an answer has come."""

    def refuse(self, pair: Pair, status: int, reason: str) -> bytes:
        """The answer to a request that cannot be read."""

    def reject(self, headers: list[Header]) -> bytes | None:
        """The answer to a client that may not send a request with *headers*; None: its body is read."""


class Pair(asyncio.Protocol):
    """The client's side; owns the server's."""

    def __init__(self, handler: Handler) -> None:
        self._handler: Final = handler
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._server: ServerSide | None = None
        self._request: Request | None = None
        self._keep_alive = True
        self._is_raw = False
        self._is_over = False
        self._early = bytearray()
        self._headers: list[Header] = []
        self._url = b""
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._has_head = False

    # -- for the handler ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None and not self._transport.is_closing()

    def server(self, identity: object) -> ServerSide | None:
        """The connection to the server, if it can take a request as *identity*."""
        server = self._server
        return server if server is not None and server.is_usable and server.identity == identity else None

    def attach(self, server: ServerSide) -> None:
        """Use *server*, which is connected, from now on."""
        if self._server is not None:
            self._server.detach()
        self._server = server
        if self._transport is None:
            server.abort()

    def answer(self, data: bytes) -> None:
        """Answer the request under way without the server."""
        if self._request is not None and self._request.method == b"HEAD":
            data = data[: data.index(_END_OF_HEAD) + len(_END_OF_HEAD)]
        if self._transport is not None:
            self._transport.write(data)
        self._finish()

    def forward(self, data: bytes, on_end: OnEnd | None = None, aliased: AliasedAnswer | None = None) -> None:
        """Send the request under way to the server as *data*.

        With *on_end* its answer is awaited even if the client hangs up; it passes through *aliased* if that is given.
        """
        if self._server is None or self._request is None:
            raise RuntimeError("forward without a request or a server")
        self._server.send(data, self._request, on_end, aliased)

    def cut(self) -> None:
        """Close the client's connection at once. An answer that is awaited is still read."""
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """Close both connections at once."""
        if self._server is not None:
            self._server.abort()
        self.cut()

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        self._handler.opened(self)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return  # what came before it was closed
        if self._is_raw:
            if self._server is not None:
                self._server.write(data)
        elif self._request is not None and self._request.is_upgrade:
            self._keep_early(data)
        elif self._request is not None:
            self.cut()
        else:
            self._parse(data)

    def pause_writing(self) -> None:
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        if self._server is not None:
            self._server.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._handler.hung_up(self)
        if self._server is not None:
            self._server.client_lost()
        else:
            self._over()

    # -- httptools ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers, self._url, self._body = [], b"", []
        self._head_bytes = self._body_bytes = 0
        self._has_head = False

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # a trailer is no header
            self._headers.append((name, value))
            self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._has_head = True
        if (answer := self._handler.reject(self._headers)) is not None:
            raise _Refused(answer)
        if self._transport is not None and any(
            name.lower() == b"expect" and value.lower() == b"100-continue" for name, value in self._headers
        ):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise _Refused(self._handler.refuse(self, 413, f"a body of more than {MAX_BODY_BYTES} bytes"))
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._request is not None:
            self.cut()  # two requests at once
            return
        parser = self._parser
        is_upgrade = parser.should_upgrade()
        self._keep_alive = parser.should_keep_alive() and not is_upgrade
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = Request(parser.get_method(), self._url, self._headers, body, is_upgrade=is_upgrade)
        self._request, self._body = request, []
        self._handler.handle(self, request)

    # -- for the server's side ---------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Pass on what the server sent."""
        if self._transport is not None:
            self._transport.write(data)

    def note_status(self, status: int) -> None:
        """The head of an answer has come."""
        self._handler.answered(self, status)

    def complete(self, *, keep_alive: bool) -> None:
        """The answer to the request under way is complete."""
        if not keep_alive:
            self._keep_alive = False
        self._finish()

    def upgraded(self) -> None:
        """The server has switched protocols: bytes pass in both directions from now on."""
        self._is_raw = True
        if self._server is not None and self._early:
            self._server.write(bytes(self._early))
            self._early.clear()
        self.resume_reading()

    def server_lost(self, *, in_answer: bool) -> None:
        """The server's connection is gone, with *in_answer* before the answer to the request under way was complete."""
        self._server = None
        if self._transport is None:
            self._over()
        elif in_answer or self._request is None:
            self._transport.close()  # a request that was not sent yet finds another connection

    def pause_reading(self) -> None:
        """The server takes no more."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The server takes bytes again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- inside ------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._keep_early(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                raise
            self._refuse(error.__context__.answer)
        except httptools.HttpParserError as error:
            self._refuse(self._handler.refuse(self, 400, f"what came is not HTTP ({error})"))

    def _refuse(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)
            self._transport.close()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refused(self._handler.refuse(self, 431, f"headers of more than {MAX_HEAD_BYTES} bytes"))

    def _keep_early(self, data: bytes) -> None:
        """Keep what a client sends before the server has switched protocols."""
        self._early += data
        if len(self._early) > BUFFERED_BYTES:
            self.pause_reading()

    def _finish(self) -> None:
        self._request = None
        if self._transport is None:
            if self._server is not None:
                self._server.abort()
        elif not self._keep_alive:
            self._transport.close()

    def _over(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._handler.closed(self)


class _Refused(Exception):
    """The parser stops, and the client gets *answer*."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
