"""A call to a server, and its outcome: an answer, or the reason why there is none. Pure values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Call(msgspec.Struct, gc=False):
    """One request, still without credentials; its path is quoted."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    body: bytes | None = None
    content_type: str = "application/json"
    is_stream: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    """Further ones, beside those of the transport."""


class BrokenMessage(Exception):
    """The exchange ended without a whole answer.

    *sent*: the request had been handed to the socket. *answered*: at least one byte of an answer came.
    *expired*: it is we who gave up, at the deadline.
    """

    def __init__(self, reason: str, *, sent: bool, answered: bool, expired: bool = False) -> None:
        self.reason = reason
        self.sent = sent
        self.answered = answered
        self.expired = expired
        super().__init__(reason)


class Answer:
    """Status, headers as they came, and body (decompressed) of one exchange."""

    __slots__ = ("body", "raw_headers", "status")

    def __init__(self, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.raw_headers = raw_headers
        self.body = body

    def headers(self) -> dict[str, str]:
        """Names in lower case; the last one wins where a name repeats."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}
