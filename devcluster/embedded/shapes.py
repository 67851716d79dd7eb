"""In which shape an object is answered: whole, metadata only, or as a row of a table; and as which version. Pure."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Any

import msgspec

from devcluster.embedded.registry import Kind, Version
from devcluster.embedded.status import not_acceptable
from devcluster.embedded.store import Entry


class Shape(enum.Enum):
    OBJECT = "Object"
    PARTIAL = "PartialObjectMetadata"
    TABLE = "Table"


def media_ranges(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Media types of an Accept header with their parameters, in the client's order."""
    ranges = []
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        pairs = (piece.partition("=") for piece in rest)
        ranges.append((media, {name: value for name, _, value in pairs}))
    return ranges


@lru_cache(maxsize=256)
def wanted_shape(accept: str) -> Shape:
    """The first shape of an Accept header that is served. Raises: 406."""
    for media, parameters in media_ranges(accept or "*/*"):
        if media not in ("application/json", "*/*", "application/*"):
            continue
        named = parameters.get("as", "")
        if not named:
            return Shape.OBJECT
        if parameters.get("v") != "v1" or parameters.get("g") != "meta.k8s.io":
            continue
        if named == "Table":
            return Shape.TABLE
        if named in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Shape.PARTIAL
    raise not_acceptable(accept)


def whole(kind: Kind, version: Version, entry: Entry) -> bytes:
    """*entry* as *version* of *kind*."""
    is_stored_version = version.name == kind.storage_version and entry.raw.startswith(kind.stored_prefix)
    if is_stored_version and kind.from_stored is None:
        return entry.document
    doc = decoded_as(kind, version, entry)
    if entry.managed:
        doc["metadata"]["managedFields"] = msgspec.Raw(entry.managed)
    return msgspec.json.encode(doc)


def item(kind: Kind, version: Version, entry: Entry) -> bytes:
    """*entry* as an item of a list: those of built-in kinds do not repeat their apiVersion and kind."""
    raw = whole(kind, version, entry)
    if not kind.builtin:
        return raw
    named = b'{"apiVersion":"%s","kind":"%s",' % (
        kind.api_version(version.name).encode(),
        kind.kind.encode(),
    )
    return b"{" + raw.removeprefix(named)


def decoded_as(kind: Kind, version: Version, entry: Entry) -> dict[str, Any]:
    """*entry* as *version* of *kind*, decoded, without managedFields. Conversion is `None`: only the name changes."""
    doc = entry.decoded()
    if kind.from_stored is not None:
        doc = kind.from_stored(doc)
    doc["apiVersion"] = kind.api_version(version.name)
    return doc


def partial(entry: Entry) -> bytes:
    """*entry* as PartialObjectMetadata."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%b}' % entry.metadata


def renumbered(entry: Entry, version: int) -> Entry:
    """*entry* under another resource version: what a watch sends for an object that left.

    Cost: no decoding. The version stands before the first field that may hold free text (see `objects.Metadata`).
    """
    raw = entry.raw.replace(b'"resourceVersion":"%d"' % entry.version, b'"resourceVersion":"%d"' % version, 1)
    end = entry.metadata_end + len(raw) - len(entry.raw)
    return msgspec.structs.replace(entry, version=version, raw=raw, metadata_end=end)
