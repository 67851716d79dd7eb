"""Answers that the proxy gives itself: a `Status`, as every client of Kubernetes understands it. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    431: "RequestHeaderFieldsTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}
"""Kubernetes' word for each status."""


class Refusal(msgspec.Struct, frozen=True):
    """A failure with *status* whose *message* a person can read; the client tries again after *retry_after_s*.

    *reason*: Kubernetes' word, if the status has more than one.
    """

    status: int
    message: str
    retry_after_s: int | None = None
    reason: str = ""


def reason_of(refusal: Refusal) -> str:
    """Kubernetes' word for *refusal*."""
    return refusal.reason or _REASONS.get(refusal.status, "")


def reply(status: int, body: bytes, content_type: str = "application/json", headers: bytes = b"") -> bytes:
    """An answer of HTTP/1.1 as it goes through the socket; *headers* end with CRLF each."""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        content_type.encode(),
        headers,
        len(body),
        body,
    )


def refusal_reply(refusal: Refusal) -> bytes:
    """*refusal* as an answer of HTTP/1.1."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": reason_of(refusal),
        "code": refusal.status,
    }
    headers = b""
    if refusal.retry_after_s is not None:
        headers = b"Retry-After: %d\r\n" % refusal.retry_after_s
        status["details"] = {"retryAfterSeconds": refusal.retry_after_s}
    return reply(refusal.status, msgspec.json.encode(status), headers=headers)
