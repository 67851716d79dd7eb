"""A request as it came, and its head on the way to the API server: whose it is, and what belongs to one connection.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

Header = tuple[bytes, bytes]

_OF_A_CONNECTION: Final = frozenset(
    {
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_IMPERSONATE: Final = b"impersonate-"
_EXTRA: Final = "impersonate-extra-"
_USER: Final = "impersonate-user"


class Request:
    """A request as it came, its body without framing."""

    __slots__ = ("body", "headers", "is_upgrade", "method", "target")

    def __init__(
        self, method: bytes, target: bytes, headers: list[Header], body: bytes, *, is_upgrade: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.is_upgrade = is_upgrade

    def header(self, name: bytes) -> bytes:
        """The first value of *name*, in lower case; empty if there is none."""
        return first_value(self.headers, name)


def first_value(headers: Iterable[Header], name: bytes) -> bytes:
    """The first value of *name*, in lower case, among *headers*; empty if there is none."""
    return next((value for known, value in headers if known.lower() == name), b"")


class Identity:
    """As whom requests are sent: *impersonation* headers beside the credential, which changes.

    A controller that impersonates another user keeps that user; extra values of *impersonation* are added, and none
    of the controller's under the same key is sent.
    """

    def __init__(self, impersonation: Iterable[tuple[str, str]] = ()) -> None:
        pairs = [(name.lower(), _line(name, value)) for name, value in impersonation]
        self._extra_keys = {_key(name) for name, _ in pairs if name.startswith(_EXTRA)}
        self._extra = b"".join(line for name, line in pairs if name.startswith(_EXTRA))
        self._whole = b"".join(line for _, line in pairs)

    def lines(self, asked: Iterable[Header]) -> bytes:
        """Header lines for a request whose own impersonation headers are *asked*."""
        kept = [
            (name, value)
            for name, value in asked
            if _key(name.decode("latin-1").lower()) not in self._extra_keys
        ]
        if not any(name.lower() == _USER.encode() for name, _ in kept):
            return self._whole + b"".join(b"%b: %b\r\n" % pair for pair in kept)
        return self._extra + b"".join(b"%b: %b\r\n" % pair for pair in kept)


def request_head(
    start: bytes, headers: Iterable[Header], *, fixed: bytes, identity: Identity, without: bytes = b""
) -> bytes:
    """Request line *start* and the header lines, without the empty one at their end.

    *fixed*: lines of ours, host and credential among them. *without*: one more header that is left out, in lower case.
    """
    lines = [start, fixed]
    impersonation: list[Header] = []
    for pair in headers:
        name = pair[0].lower()
        if name in _OF_A_CONNECTION or name == without:
            continue
        if name.startswith(_IMPERSONATE):
            impersonation.append(pair)
        else:
            lines.append(b"%b: %b\r\n" % pair)
    lines.append(identity.lines(impersonation))
    return b"".join(lines)


def _line(name: str, value: str) -> bytes:
    return f"{name}: {value}\r\n".encode("latin-1")


def _key(name: str) -> str:
    """The key that a server reads in the header *name* (lower case) of an extra value."""
    return unquote(name.removeprefix(_EXTRA)).lower() if name.startswith(_EXTRA) else name
