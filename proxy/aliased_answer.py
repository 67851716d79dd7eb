"""An answer put together anew from its parsed parts, with an alias in its body. Pure.

HTTP's framing may cut a name: a chunked body gets chunks of its own. Length and encoding stay.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from proxy.alias import AliasedStream

OnInvalid = Callable[[bytes], bytes]
_INVALID: Final = 422
_FRAMING: Final = b"transfer-encoding"
_STARTS: Final = {int(each): f"HTTP/1.1 {each:d} {each.phrase}\r\n".encode() for each in HTTPStatus}
"""Status lines."""


class AliasedAnswer:
    """Takes the parts of one answer, in their order; `take` gives what can be passed on.

    An answer before it (100, 103) has a head of its own.
    """

    def __init__(self, body: AliasedStream, on_invalid: OnInvalid | None = None) -> None:
        """*on_invalid*: gets a whole answer of status 422, and gives what is passed on for it."""
        self._body: Final = body
        self._on_invalid: Final = on_invalid
        self._is_kept = False
        self._out: Final[list[bytes]] = []
        self._headers: Final[list[bytes]] = []
        self._has_head = self._is_chunked = False

    def add_header(self, name: bytes, value: bytes) -> None:
        """One header; a trailer is left out."""
        if self._has_head:
            return
        self._headers.append(b"%b: %b\r\n" % (name, value))
        if len(name) == len(_FRAMING) and name.lower() == _FRAMING:
            self._is_chunked = value.lower() == b"chunked"

    def end_head(self, status: int) -> None:
        """The head is complete."""
        self._has_head = status >= 200
        self._is_kept = status == _INVALID and self._on_invalid is not None
        start = _STARTS.get(status) or b"HTTP/1.1 %d \r\n" % status
        self._out.extend([start, *self._headers, b"\r\n"])
        self._headers.clear()

    def feed(self, piece: bytes) -> None:
        """A piece of the body, without its framing."""
        self._add(self._body.feed(piece))

    def feed_raw(self, piece: bytes) -> None:
        """What came after a switch of protocols."""
        self._out.append(self._body.feed(piece))

    def end(self) -> None:
        """The answer is complete."""
        self._add(self._body.rest())
        if self._is_chunked:
            self._out.append(b"0\r\n\r\n")

        if self._is_kept and self._on_invalid is not None:
            self._is_kept = False
            self._out[:] = [self._on_invalid(b"".join(self._out))]

    def cut_off(self) -> None:
        """No more comes; a chunked answer stays without its end."""
        self._is_kept = False
        self._add(self._body.rest())

    def take(self) -> bytes:
        """What was not taken yet."""
        if self._is_kept:
            return b""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _add(self, body: bytes) -> None:
        if self._is_chunked and body:
            self._out.append(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._out.append(body)
