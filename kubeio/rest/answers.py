"""Interpretation of an API server's answers: failures as typed errors, bodies as objects and pages. Pure.

Owns the meaning of status codes; the transport only tests for 401.
"""

from __future__ import annotations

import email.utils
import functools
import http
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from kubeio.decoding import UNREADABLE, Unfit, decode_pruned, members, object_from, pruned, unfit
from kubeio.errors import ApiError, Expired, api_error
from kubeio.http.messages import Answer
from kubeio.models import ListMeta, Object

T = TypeVar("T")

_SHOWN_CHARACTERS = 200
_OF_SECRETS = re.compile(r"/api/v1/(?:namespaces/[^/ ]+/)?secrets\b").search


class _StatusDetails(msgspec.Struct, gc=False, rename="camel"):
    retry_after_seconds: float | None = None


class FailureStatus(msgspec.Struct, gc=False):
    """A `Status` that says why a request, or a watch, failed."""

    code: int = 500
    message: str = ""
    reason: str = ""
    details: _StatusDetails | None = None
    metadata: ListMeta | None = None

    @property
    def retry_after_s(self) -> float | None:
        return self.details.retry_after_seconds if self.details is not None else None


class _RawList(msgspec.Struct, gc=False):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. An empty *continue_* means the last one; *remaining* is the server's guess, if any.

    *unfit*: objects of it whose metadata cannot be read; they are not among *objects*.
    """

    objects: list[Object]
    resource_version: str
    continue_: str
    remaining: int | None
    unfit: Sequence[Unfit] = ()


decode_status = msgspec.json.Decoder(FailureStatus).decode
_decode_list = msgspec.json.Decoder(_RawList).decode
_LIST_LEVELS = 2
"""Depth of the objects of a list."""


def error_of(attempted: str, answer: Answer, *, now: datetime) -> ApiError:
    """The error that *answer*, of status 300 or above, stands for; *now* by the wall clock."""
    headers = answer.headers()
    try:
        status = decode_pruned(decode_status, answer.body)
    except UNREADABLE:
        text = " ".join(answer.body[:2000].decode("utf-8", "replace").split())
        status = FailureStatus(message=text[:_SHOWN_CHARACTERS] or "(no message)")
    message = status.message
    if answer.status in (400, 422) and _OF_SECRETS(attempted):
        message = "(left out: the server's message may repeat values of a Secret)"
    retry_after_s = parse_retry_after(headers.get("retry-after", ""), now=now)
    if retry_after_s is None:
        retry_after_s = status.retry_after_s or None
    error = api_error(
        attempted,
        status=answer.status,
        reason=status.reason or _phrase(answer.status),
        message=message,
        retry_after_s=retry_after_s,
    )
    if isinstance(error, Expired) and status.metadata is not None:
        error.continue_ = status.metadata.continue_
    return error


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return "Failure"


def parse_retry_after(value: str, *, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date; None if it says nothing usable."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        instant = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, instant.timestamp() - now.timestamp())


class Unexpected(Exception):
    """The body of a successful answer is not what was asked for: a proxy's page, another server."""


def decode(body: bytes, kind: type[T]) -> T:
    """*body* as *kind*; `bytes` gives it as it came. Raises Unexpected.

    Of JSON nested too deep for Python a Struct is given without what lies deeper than its own fields.
    """
    if kind is bytes:
        return cast(T, body)
    decoder = _decoder(cast(Any, kind)).decode
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    try:
        return cast(T, decode_pruned(decoder, body) if is_struct else decoder(body))
    except (*UNREADABLE, RecursionError) as error:
        raise _unexpected(body, error) from error


def decode_page(body: bytes) -> Page:
    """*body* of a list: each object's metadata decoded, the object itself as bytes. Raises Unexpected."""
    try:
        listed, raws = _list(body)
    except UNREADABLE as error:
        raise _unexpected(body, error) from error
    objects: list[Object] = []
    unreadable: list[Unfit] = []
    for raw in raws:
        whole = bytes(raw)  # a Raw is a view that would keep the whole page alive
        try:
            objects.append(object_from(whole))
        except UNREADABLE as error:
            unreadable.append(unfit(whole, error))
    meta = listed.metadata
    return Page(objects, meta.resource_version, meta.continue_, meta.remaining_item_count, unreadable)


def _list(body: bytes) -> tuple[_RawList, Iterable[bytes | msgspec.Raw]]:
    """The list *body* and the JSON of its objects. Raises what is in UNREADABLE."""
    try:
        listed = _decode_list(body)
    except RecursionError:
        return _decode_list(pruned(body, _LIST_LEVELS)), members(body, b"items", depth=_LIST_LEVELS)
    return listed, listed.items or ()


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _unexpected(body: bytes, error: Exception) -> Unexpected:
    if body.lstrip()[:1] in (b"{", b"["):  # an object, perhaps a Secret
        return Unexpected(f"{error}; it is JSON of {len(body)} bytes")
    begin = body[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
    return Unexpected(f"{error}; it begins with {begin!r}")
