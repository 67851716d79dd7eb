"""What a watch session tells its consumer, and how one line of a watch becomes it. Pure.

Used by `kubeio.watches.watch`, which produces the events, and by everything that matches on them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeio.errors import ApiError, KubeError, Unreachable, api_error
from kubeio.models import HasMeta, Object

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class ListStarted(msgspec.Struct, frozen=True, gc=False):
    """A new picture begins; one that was not finished counts for nothing but its objects' versions."""


class Listed(msgspec.Struct, frozen=True):
    """Part of the picture."""

    objects: list[Object]


class ListDone(msgspec.Struct, frozen=True, gc=False):
    """The picture is complete as of *resource_version*: whatever was not in it is gone."""

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
    """The bookmark that ends the initial events of a WatchList; never leaves `kubeio.watches.watch`."""

    resource_version: str


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    code: int = 500
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_BEGINNINGS: Final = ((b'{"type":"ADDED","object":', True), (b'{"type":"MODIFIED","object":', False))
"""As API servers write most lines: what follows, but for the last brace, is the object."""
_line_decoder = msgspec.json.Decoder(_Line)
_meta_decoder = msgspec.json.Decoder(HasMeta)
_status_decoder = msgspec.json.Decoder(_Status)


def decode_line(line: bytes, attempted: str) -> Changed | Removed | Bookmark | InitialEventsEnd:
    """What one *line* of the watch *attempted* says. The object's bytes are a copy of their own.

    Raises: the ApiError that an ERROR event carries; Unreachable if the line is torn or unreadable.
    """
    for beginning, is_new in _BEGINNINGS:
        if line.startswith(beginning):
            raw = line[len(beginning) : -1]
            try:
                return Changed(Object(_meta_decoder.decode(raw).metadata, raw), is_new=is_new)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break  # written in another way, or torn
    return _decoded(line, attempted)


def _decoded(line: bytes, attempted: str) -> Changed | Removed | Bookmark | InitialEventsEnd:
    try:
        parsed = _line_decoder.decode(line)
        raw = bytes(parsed.object)
        if parsed.type == "ERROR":
            raise _error(raw, attempted)
        meta = _meta_decoder.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(attempted, f"unreadable watch event ({error})", maybe_done=False) from error
    match parsed.type:
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


def _error(raw: bytes, attempted: str) -> ApiError:
    status = _status_decoder.decode(raw)
    return api_error(
        attempted,
        status=status.code,
        reason=status.reason,
        message=status.message,
        retry_after_s=status.details.retry_after_seconds if status.details is not None else None,
    )
