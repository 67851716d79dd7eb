"""managedFields: which writer set which field of an object. Pure.

Owns the sets of fields, their encoding, and the entries of plain writes; `apply` adds those of server-side apply.
Smaller than the real thing in two ways: a list is one field in every schema, and the number of entries is not
limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

Doc = dict[str, Any]
Path = tuple[str, ...]
"""Names of nested fields as FieldsV1 has them: `("f:spec", "f:html")`."""

_DEEPEST: Final = 64
"""A map below so many others is one field: a path costs its length, and JSON may be nested 10,000 deep."""
_STRUCTS: Final = frozenset({"spec", "status", "source", "deprecatedSource"})
"""Fields of built-in kinds that are structs in Go: always present, so they have no writer."""
_ATOMIC: Final = frozenset({"involvedObject", "regarding", "related", "roleRef"})
_WRITTEN_METADATA: Final = {
    "annotations": "annotations",
    "finalizers": "finalizers",
    "generateName": "generate_name",
    "labels": "labels",
    "ownerReferences": "owner_references",
}
_written_metadata: Final = attrgetter(*_WRITTEN_METADATA.values())


class ManagedFieldsEntry(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The fields of one writer."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")
    subresource: str = ""

    @property
    def fields(self) -> frozenset[Path]:
        return _decoded_fields(bytes(self.fields_v1))

    def is_by(self, other: ManagedFieldsEntry) -> bool:
        """Whether both are of one writer. An applier is the same in every version of the API."""
        return (
            self.manager == other.manager
            and self.operation == other.operation
            and self.subresource == other.subresource
            and (self.operation == "Apply" or self.api_version == other.api_version)
        )

    def with_fields(self, fields: frozenset[Path]) -> ManagedFieldsEntry:
        return msgspec.structs.replace(self, fields_type="FieldsV1", fields_v1=_encoded_fields(fields))


Entries = tuple[ManagedFieldsEntry, ...]


def sent_entries(value: object) -> Entries | None:
    """The entries that a client sent as *value*: none for `[{}]`, which resets them; None if they are not sound.

    Raises: msgspec.ValidationError.
    """
    if value == [{}]:
        return ()
    sent = decode_entries(msgspec.json.encode(value))
    if not sent or not all(entry.operation in ("Apply", "Update") and entry.fields for entry in sent):
        return None
    return tuple(entry.with_fields(entry.fields) for entry in sent)


def encode_entries(entries: Sequence[ManagedFieldsEntry]) -> bytes:
    """The JSON in which entries are stored and served; empty for none."""
    return msgspec.json.encode(entries) if entries else b""


_entries_decoder: Final = msgspec.json.Decoder(Entries)


@lru_cache(maxsize=4096)
def decode_entries(data: bytes) -> Entries:
    """The entries of `encode_entries`. Writers are few: most objects share their entries with others."""
    return _entries_decoder.decode(data) if data else ()


@lru_cache(maxsize=4096)
def _decoded_fields(data: bytes) -> frozenset[Path]:
    return frozenset(decode_fields(msgspec.json.decode(data, type=Doc)))


@lru_cache(maxsize=4096)
def _encoded_fields(fields: frozenset[Path]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(encode_fields(fields)))


def updated_entries(
    entries: bytes, own: ManagedFieldsEntry, old: Doc, new: Doc, *, is_builtin: bool
) -> bytes:
    """*entries* after the writer of *own* changed *old* to *new*; an object without entries gets none.

    *old* and *new* are as `written_part` gives them; an empty *old* is a create.
    """
    if not entries and old:
        return entries
    written: set[Path] = set()
    gone: set[Path] = set()
    _compare(old, new, (), written, gone, is_builtin=is_builtin)
    if not written and not gone:
        return entries
    writer = own.manager, own.operation, own.api_version, own.time, own.subresource
    return _after_write(entries, writer, frozenset(written), frozenset(gone))


@lru_cache(maxsize=4096)
def _after_write(
    entries: bytes,
    writer: tuple[str, str, str, str | None, str],
    written: frozenset[Path],
    gone: frozenset[Path],
) -> bytes:
    """Cost: most writes of one second by one writer share the result."""
    manager, operation, api_version, time, subresource = writer
    own = ManagedFieldsEntry(manager, operation, api_version, time, subresource=subresource)
    known = decode_entries(entries)
    previous = next((entry for entry in known if entry.is_by(own)), None)
    after = []
    for entry in known:
        if entry is previous and written:
            continue
        fields = entry.fields
        if left := fields - written - gone:
            after.append(entry if left == fields else entry.with_fields(left))
    if written:
        kept = previous.fields - gone if previous else frozenset[Path]()
        after.append(own.with_fields(kept | written))
    return encode_entries(in_order(after))


def in_order(entries: Sequence[ManagedFieldsEntry]) -> Entries:
    """Appliers first, then by time, as the real server has them."""
    return tuple(sorted(entries, key=_order))


def _order(entry: ManagedFieldsEntry) -> tuple[str, ...]:
    return entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource


def written_part(metadata: Any, rest: Doc) -> Doc:
    """The part of an object that is recorded, of its metadata (a struct) and the *rest*."""
    values = zip(_WRITTEN_METADATA, _written_metadata(metadata), strict=True)
    return {**rest, "metadata": {field: value for field, value in values if value}}


def encode_fields(paths: Iterable[Path]) -> Doc:
    """FieldsV1: `{"f:spec": {".": {}, "f:html": {}}}`; the dot is the map itself."""
    fields: Doc = {}
    for path in sorted(paths, key=lambda path: (-len(path), path)):  # a map after what is in it
        level = fields
        for name in path:
            level = level.setdefault(name, {})
        if level:
            level["."] = {}
    return fields


def decode_fields(fields: Doc, prefix: Path = ()) -> set[Path]:
    paths: set[Path] = set()
    for name, below in fields.items():
        if name == ".":
            paths.add(prefix)
        elif isinstance(below, dict) and below:
            paths |= decode_fields(below, (*prefix, name))
        else:
            paths.add((*prefix, name))
    return paths


def _compare(
    old: Doc, new: Doc, prefix: Path, written: set[Path], gone: set[Path], *, is_builtin: bool
) -> None:
    """Collect what *new* has added or changed, and what it has left out."""
    for name in old.keys() | new.keys():
        path = (*prefix, f"f:{name}")
        if name not in new:
            gone |= subtree(old[name], path, is_builtin=is_builtin)
        elif name not in old:
            written |= subtree(new[name], path, is_builtin=is_builtin)
        elif old[name] != new[name]:
            both_are_maps = isinstance(old[name], dict) and isinstance(new[name], dict)
            if not both_are_maps:
                gone |= subtree(old[name], path, is_builtin=is_builtin)
                written |= subtree(new[name], path, is_builtin=is_builtin)
            elif _is_one_field(path, is_builtin=is_builtin):
                written.add(path)
            else:
                _compare(old[name], new[name], path, written, gone, is_builtin=is_builtin)


def subtree(value: Any, path: Path, *, is_builtin: bool) -> set[Path]:
    """*path* and all fields below it."""
    paths = set() if _is_implied(path, is_builtin=is_builtin) else {path}
    if isinstance(value, dict) and not _is_one_field(path, is_builtin=is_builtin):
        for name, below in value.items():
            paths |= subtree(below, (*path, f"f:{name}"), is_builtin=is_builtin)
    return paths


def _is_implied(path: Path, *, is_builtin: bool) -> bool:
    return path == ("f:metadata",) or (is_builtin and len(path) == 1 and path[0][2:] in _STRUCTS)


def _is_one_field(path: Path, *, is_builtin: bool) -> bool:
    return len(path) >= _DEEPEST or (is_builtin and len(path) == 1 and path[0][2:] in _ATOMIC)
