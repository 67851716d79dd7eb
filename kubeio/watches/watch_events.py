"""Events of a watch session, and their decoding from lines of a watch. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeio.decoding import UNREADABLE, Unfit, decode_pruned, members, meta_of, object_from, unfit
from kubeio.errors import ApiError, KubeError, Unreachable, api_error
from kubeio.models import Object
from kubeio.rest.answers import decode_status

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class ListStarted(msgspec.Struct, frozen=True, gc=False):
    """A new list begins; of an unfinished one only the versions of its objects count."""


class Listed(msgspec.Struct, frozen=True):
    """Part of the list."""

    objects: list[Object]


class ListDone(msgspec.Struct, frozen=True, gc=False):
    """The list is complete as of *resource_version*: objects not in it are gone."""

    resource_version: str


class Changed(msgspec.Struct, frozen=True, gc=False):
    """An object came into the selection (*is_new*) or changed inside it."""

    object: Object
    is_new: bool


class Removed(msgspec.Struct, frozen=True, gc=False):
    """An object was deleted or left the selection: both look the same. Labels are those before, the version is new."""

    object: Object


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Nothing was missed up to *resource_version*."""

    resource_version: str


class Gap(msgspec.Struct, frozen=True):
    """The stream broke; nothing will be seen for at least *retry_in_s*."""

    error: KubeError
    retry_in_s: float


WatchEvent = ListStarted | Listed | ListDone | Changed | Removed | Bookmark | Gap


class InitialEventsEnd(msgspec.Struct, frozen=True, gc=False):
    """The bookmark that ends the initial events of a WatchList; never leaves `kubeio.watches.reflector`."""

    resource_version: str


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_BEGINNINGS: Final = (
    (b'{"type":"ADDED","object":', "ADDED"),
    (b'{"type":"MODIFIED","object":', "MODIFIED"),
    (b'{"type":"DELETED","object":', "DELETED"),
)
"""Usual beginnings of a line: the rest, but for the last brace, is the object."""
_decode_line = msgspec.json.Decoder(_Line).decode


def decode_line(line: bytes, attempted: str) -> Changed | Removed | Bookmark | InitialEventsEnd | Unfit:
    """The event in one *line* of the watch *attempted*. The object's bytes are a copy of their own.

    Raises: the ApiError that an ERROR event carries; Unreachable if the line is torn or no event.
    """
    for beginning, said in _BEGINNINGS:
        if line.startswith(beginning):
            try:
                found = object_from(line[len(beginning) : -1])
            except UNREADABLE:
                break  # written in another way, torn, or unfit
            return Removed(found) if said == "DELETED" else Changed(found, is_new=said == "ADDED")
    return _decoded(line, attempted)


def _decoded(line: bytes, attempted: str) -> Changed | Removed | Bookmark | InitialEventsEnd | Unfit:
    try:
        said, raw = _taken_apart(line)
        if said == "ERROR":
            raise _error(raw, attempted)
    except UNREADABLE as error:
        raise Unreachable(attempted, f"unreadable watch event ({error})", maybe_done=False) from error
    try:
        meta = meta_of(raw)
    except UNREADABLE as error:
        return unfit(raw, error)
    match said:
        case "MODIFIED":
            return Changed(Object(meta, raw), is_new=False)
        case "ADDED":
            return Changed(Object(meta, raw), is_new=True)
        case "DELETED":
            return Removed(Object(meta, raw))
        case "BOOKMARK":
            if meta.annotations.get(INITIAL_EVENTS_END) == "true":
                return InitialEventsEnd(meta.resource_version)
            return Bookmark(meta.resource_version)
        case unknown:
            raise Unreachable(attempted, f"unknown watch event {unknown!r}", maybe_done=False)


def _taken_apart(line: bytes) -> tuple[str, bytes]:
    """Type and object of the event in *line*. Raises what is in UNREADABLE."""
    try:
        parsed = _decode_line(line)
    except RecursionError:
        return decode_pruned(_decode_line, line).type, next(members(line, b"object"), b"")
    return parsed.type, bytes(parsed.object)


def _error(raw: bytes, attempted: str) -> ApiError:
    status = decode_status(raw)
    return api_error(
        attempted,
        status=status.code,
        reason=status.reason,
        message=status.message,
        retry_after_s=status.retry_after_s,
    )
