"""The connection to the server of one pair: answers are parsed for their framing only and passed on as bytes, unless
an alias stands in them.

Owns the server's socket, and the end of each request: an answer that is awaited is read to its end even if the client
hung up. Knows no Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

from proxy.aliased_answer import AliasedAnswer
from proxy.headers import Request

BUFFERED_BYTES: Final = 256 * 1024
"""Sent and not taken: the other side is not read until it is less."""
ANSWER_WITHIN_S: Final = 60.0
"""How long the answer to a request is awaited whose client hung up. The API server ends requests after 34 s."""

OnEnd = Callable[[int | None], None]
"""Called once, with the status of the answer; None: there was none."""


class ClientSide(Protocol):
    """The other side of the pair."""

    def deliver(self, data: bytes) -> None:
        """Pass on what the server sent."""

    def note_status(self, status: int) -> None:
        """The head of an answer has come."""

    def complete(self, *, keep_alive: bool) -> None:
        """The answer to the request under way is complete."""

    def upgraded(self) -> None:
        """The server has switched protocols."""

    def server_lost(self, *, in_answer: bool) -> None:
        """The connection is gone, with *in_answer* before an answer was complete."""

    def pause_reading(self) -> None:
        """The server takes no more."""

    def resume_reading(self) -> None:
        """The server takes bytes again."""


class ServerSide(asyncio.Protocol):
    """Serves *client*; opened with *identity*."""

    def __init__(self, client: ClientSide, identity: object) -> None:
        self.identity: Final = identity
        self._client: ClientSide | None = client
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._request: Request | None = None
        self._aliased: AliasedAnswer | None = None
        self._on_end: OnEnd | None = None
        self._status = 0
        self._is_framed = False
        self._is_raw = False
        self._is_aborted = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._request is None

    def send(
        self, data: bytes, request: Request, on_end: OnEnd | None, aliased: AliasedAnswer | None = None
    ) -> None:
        """Send *data*, which is *request*. *aliased*: through it the answer passes."""
        self._request, self._on_end, self._status, self._aliased = request, on_end, 0, aliased
        if self._transport is None:
            self._lost()
        else:
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        """Pass on what the client sent after the protocol was switched."""
        if self._transport is not None:
            self._transport.write(data)

    def client_lost(self) -> None:
        """The client hung up: an answer that is not awaited is cut."""
        if self._request is None or self._on_end is None or self._transport is None:
            self.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(ANSWER_WITHIN_S, self.abort)
        self.resume_reading()

    def detach(self) -> None:
        """Close; the client goes on without this connection."""
        self._client = None
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """The client takes no more."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The client takes bytes again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        if self._is_aborted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._client is None:
            return
        if self._request is None and not self._is_raw:
            self.abort()  # unrequested bytes: the next answer could belong to another request
            return
        if self._aliased is None:
            self._client.deliver(data)  # before its end is noticed
        elif self._is_raw:
            self._aliased.feed_raw(data)
        if not self._is_raw:
            self._parse(data)
        self._deliver_aliased()

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_reading()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    # -- httptools ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_framed = False
        if self._request is None:
            self.abort()  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name)
        if (size == 14 and name.lower() == b"content-length") or (
            size == 17 and name.lower() == b"transfer-encoding"
        ):
            self._is_framed = True
        if self._aliased is not None:
            self._aliased.add_header(name, value)

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._aliased is not None:
            self._aliased.end_head(self._status)
        if self._client is not None:
            self._client.note_status(self._status)
        if self._request is not None and self._request.method == b"HEAD":
            self._finish(keep_alive=False)

    def on_body(self, body: bytes) -> None:
        if self._aliased is not None:
            self._aliased.feed(body)

    def on_message_complete(self) -> None:
        if self._status >= 200 and self._request is not None:
            if self._aliased is not None:
                self._aliased.end()
            self._finish(keep_alive=self._parser.should_keep_alive())

    # -- inside ------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch()
            if self._aliased is not None and self._is_raw:
                self._aliased.feed_raw(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.abort()

    def _deliver_aliased(self) -> None:
        if self._aliased is not None and self._client is not None and (data := self._aliased.take()):
            self._client.deliver(data)

    def _switch(self) -> None:
        if self._request is None or not self._request.is_upgrade:
            self.abort()
            return
        self._is_raw = True
        self._deliver_aliased()
        self._end(self._status)
        if self._client is not None:
            self._client.upgraded()

    def _finish(self, *, keep_alive: bool) -> None:
        self._deliver_aliased()
        self._request = self._aliased = None
        self._end(self._status)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._client is not None:
            self._client.complete(keep_alive=keep_alive)

    def _lost(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        in_answer, self._request = self._request is not None, None
        if self._aliased is not None:
            self._aliased.cut_off()
            self._deliver_aliased()
        # an answer without a length ends with its connection
        self._end(self._status if self._status >= 200 and not self._is_framed else None)
        if self._client is not None:
            self._client.server_lost(in_answer=in_answer)

    def _end(self, status: int | None) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(status)
