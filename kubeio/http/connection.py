"""One HTTP/1.1 connection: writes a request, parses the answer or the lines of a stream.

Owns the state of one socket between dialling and closing. Knows no credentials, pool or retries.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Final, cast

import httptools

from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, BrokenMessage

MAX_HEADER_BYTES: Final = 256 * 1024
MAX_BODY_BYTES: Final = 2 * 1024**3
_TIMER_GRAIN_S: Final = 0.002
"""uvloop counts in milliseconds."""


class Connection(asyncio.Protocol):
    """One exchange at a time: `exchange` for a whole answer, `stream` for lines.

    The caller that gives up on an exchange (cancellation, failure) calls `abort`: a connection is reused only if
    `is_reusable` after a whole answer.
    """

    __slots__ = (
        "_answered",
        "_chunks",
        "_closed",
        "_content_encoding",
        "_deadline",
        "_fed_header_bytes",
        "_gunzip",
        "_has_head",
        "_head_only",
        "_headers",
        "_keep_alive",
        "_lines",
        "_loop",
        "_lost",
        "_on_lost",
        "_parser",
        "_received_bytes",
        "_status",
        "_timer",
        "_timer_at",
        "_transport",
        "_until_eof",
        "_waiter",
        "_wants_lines",
        "exchanges",
        "identity",
        "idle_since",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, identity: object = None) -> None:
        self._loop = loop
        self.identity = identity
        """With which client certificate it was opened."""
        self.exchanges = 0
        """Whole answers received so far."""
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer | BrokenMessage] | None = None
        self._lines: Lines | None = None
        self._wants_lines = False
        self._head_only = False
        self._on_lost: Callable[[Connection], None] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._lost = False
        self._keep_alive = True
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        self._answered = False
        # the message being received
        self._headers: list[tuple[bytes, bytes]] = []
        self._fed_header_bytes = 0
        self._has_head = False
        self._status = 0
        self._content_encoding = b""
        self._until_eof = True
        self._gunzip: zlib._Decompress | None = None
        self._chunks: list[bytes] = []
        self._received_bytes = 0

    # -- for the pool ------------------------------------------------------------------------------------

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may begin: nothing pending, nothing unsent, both sides willing."""
        transport = self._transport
        return (
            self._waiter is None
            and self._lines is None
            and self._keep_alive
            and not self._lost
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )

    def on_lost(self, callback: Callable[[Connection], None] | None) -> None:
        """Call *callback* when the socket is gone; None withdraws it."""
        self._on_lost = callback

    def abort(self) -> None:
        """Close at once, without ceremony; a pending exchange fails."""
        self._keep_alive = False
        if self._transport is not None and not self._lost:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the socket is gone."""
        if self._lost or self._transport is None:
            return
        if self._closed is None:
            self._closed = self._loop.create_future()
        await asyncio.shield(self._closed)

    # -- for the client ----------------------------------------------------------------------------------

    def exchange(
        self, request: bytes, *, deadline: float, head_only: bool = False
    ) -> asyncio.Future[Answer | BrokenMessage]:
        """Send *request* (head and body); the future gives the whole answer, or why there is none.

        BrokenMessage is a result here and not an exception: a cancelled call would never retrieve it.

        *deadline* is on the loop's clock. *head_only*: the answer to HEAD has no body, whatever it says.
        """
        waiter = self._waiter = self._loop.create_future()
        self._answered = False
        self._head_only = head_only
        self._deadline = deadline
        # One timer serves many exchanges: it checks the deadline of the moment when it fires.
        if self._timer is None or self._timer_at > deadline:
            self._arm(deadline)
        if self._lost or self._transport is None or self._transport.is_closing():
            self._fail("the connection was closed before the request was sent", sent=False)
        else:
            self._transport.write(request)
        return waiter

    def stream(self, request: bytes, *, deadline: float) -> asyncio.Future[Answer | BrokenMessage]:
        """Send *request*; the future gives the head of an answer whose body is in `lines`, or a failure whole."""
        self._wants_lines = True
        return self.exchange(request, deadline=deadline)

    @property
    def lines(self) -> Lines | None:
        """The lines of the stream, once its head has come and is no failure."""
        return self._lines

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None and self._lines is None:
            self.abort()  # unrequested bytes: the next answer could belong to another request
            return
        self._answered = True
        if not self._has_head:
            self._fed_header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("the server wants to switch protocols")
        except httptools.HttpParserCallbackError as error:
            reason = error.__context__ or error
            self._break(str(reason))
        except httptools.HttpParserError as error:
            self._break(f"what came is not HTTP ({error})")
        else:
            if not self._has_head and self._fed_header_bytes > MAX_HEADER_BYTES and self._waiter is not None:
                self._break(f"headers of more than {MAX_HEADER_BYTES} bytes")

    def eof_received(self) -> bool:
        return False  # close our side too

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if exc is None and self._until_eof and self._has_head:
            self._finish()
        else:
            self._fail(f"connection lost: {exc}" if exc else "the server closed the connection")
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        if self._on_lost is not None:
            self._on_lost(self)
            self._on_lost = None
        del self._parser  # it holds us: break the cycle

    # -- httptools ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._waiter is None and self._lines is None:
            self._keep_alive = False  # a second answer to one request
        self._reset_message()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._status = self._parser.get_status_code()
        if status < 200:
            return  # 100 Continue, 103 Early Hints: the real answer follows
        if (
            self._fed_header_bytes > MAX_HEADER_BYTES
            and sum(len(name) + len(value) for name, value in self._headers) > MAX_HEADER_BYTES
        ):
            raise ValueError(f"headers of more than {MAX_HEADER_BYTES} bytes")
        self._has_head = True
        self._read_headers()
        if status in (204, 304):
            self._until_eof = False
        if self._content_encoding not in (b"", b"identity"):
            if self._content_encoding not in (b"gzip", b"x-gzip"):
                raise ValueError(f"the answer is compressed as {self._content_encoding!r}, unasked")
            self._gunzip = zlib.decompressobj(wbits=31)
        if self._head_only:
            self._keep_alive = False
            self._finish()
        elif self._wants_lines and status < 300:
            self._begin_lines()

    def on_body(self, chunk: bytes) -> None:
        if self._gunzip is not None:
            chunk = self._decompress(self._gunzip, chunk)
            if not chunk:
                return
        if self._lines is not None:
            self._lines.feed(chunk)
            return
        self._received_bytes += len(chunk)
        if self._received_bytes > MAX_BODY_BYTES:
            raise ValueError(f"an answer of more than {MAX_BODY_BYTES} bytes")
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        if self._status < 200:
            return
        if not self._parser.should_keep_alive():
            self._keep_alive = False
        if self._gunzip is not None and not self._gunzip.eof and self._received_bytes:
            raise ValueError("the compressed answer is cut off")
        self._finish()

    # -- inside ------------------------------------------------------------------------------------------

    def _reset_message(self) -> None:
        self._headers = []
        self._fed_header_bytes = 0
        self._has_head = False
        self._status = 0
        self._content_encoding = b""
        self._until_eof = True
        self._gunzip = None
        self._chunks = []
        self._received_bytes = 0

    def _read_headers(self) -> None:
        """Note how the body is framed and packed. Lengths first: a comparison of names costs more."""
        for name, value in self._headers:
            size = len(name)
            if size == 16 and name.lower() == b"content-encoding":
                self._content_encoding = value.strip().lower()
            elif (size == 14 and name.lower() == b"content-length") or (
                size == 17 and name.lower() == b"transfer-encoding"
            ):
                self._until_eof = False

    def _begin_lines(self) -> None:
        self._lines = Lines(self._pause_reading, self._resume_reading)
        self._answer(b"")

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _decompress(self, gunzip: zlib._Decompress, chunk: bytes) -> bytes:
        """Undo gzip piece by piece; the server may begin a new member at each flush."""
        plain = []
        while chunk:
            if gunzip.eof:
                gunzip = self._gunzip = zlib.decompressobj(wbits=31)
            plain.append(gunzip.decompress(chunk))
            chunk = gunzip.unused_data
        return b"".join(plain)

    def _finish(self) -> None:
        if self._lines is not None:
            self._keep_alive = False
            self._lines.end()
        else:
            chunks = self._chunks
            self._answer(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def _answer(self, body: bytes) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self.exchanges += 1
            if not waiter.done():
                waiter.set_result(Answer(self._status, self._headers, body))

    def _break(self, reason: str) -> None:
        self._fail(reason)
        self.abort()

    def _fail(self, reason: str, *, sent: bool = True, expired: bool = False) -> None:
        self._keep_alive = False
        failure = BrokenMessage(reason, sent=sent, answered=self._answered, expired=expired)
        if self._lines is not None:
            self._lines.fail(failure)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(failure)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._deadline - _TIMER_GRAIN_S:
            self._fail("no answer in time", expired=True)
            self.abort()
        else:
            self._arm(self._deadline)
