"""managedFields: which writer set which field of an object. Pure.

Owns the sets of fields, their encoding, and the entries of plain writes; `apply` adds those of server-side apply.
Smaller than the real thing in two ways: a list is one field whatever its schema says, and the number of entries is
not limited.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Doc = dict[str, Any]
Path = tuple[str, ...]
"""Names of nested fields as FieldsV1 has them: `("f:spec", "f:html")`."""

_DEEPEST: Final = 64
"""A map below so many others is one field: a path costs its length, and JSON may be nested 10,000 deep."""
_STRUCTS: Final = frozenset({"spec", "status", "source", "deprecatedSource"})
"""Fields of built-in kinds that are always there, as Go structs are: nobody adds them."""
_ATOMIC: Final = frozenset({"involvedObject", "regarding", "related", "roleRef"})
_WRITTEN_METADATA: Final = {
    "annotations": "annotations",
    "finalizers": "finalizers",
    "generateName": "generate_name",
    "labels": "labels",
    "ownerReferences": "owner_references",
}


class ManagedFieldsEntry(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """The fields of one writer."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: Doc = msgspec.field(default_factory=dict, name="fieldsV1")
    subresource: str = ""

    @property
    def fields(self) -> set[Path]:
        return decode_fields(self.fields_v1)

    def is_by(self, other: ManagedFieldsEntry) -> bool:
        """Whether both are of one writer. An applier is the same in every version of the API."""
        return (
            self.manager == other.manager
            and self.operation == other.operation
            and self.subresource == other.subresource
            and (self.operation == "Apply" or self.api_version == other.api_version)
        )

    def with_fields(self, fields: set[Path]) -> ManagedFieldsEntry:
        return msgspec.structs.replace(self, fields_type="FieldsV1", fields_v1=encode_fields(fields))


def base_entries(
    stored: list[ManagedFieldsEntry] | None, sent: list[ManagedFieldsEntry] | None
) -> list[ManagedFieldsEntry]:
    """The entries that a write starts from: those *sent* with it, if there are any; `[{}]` resets them."""
    if sent == [ManagedFieldsEntry()]:
        return []
    is_sound = sent and all(entry.operation in ("Apply", "Update") and entry.fields_v1 for entry in sent)
    return list((sent if is_sound else stored) or [])


def updated_entries(
    entries: list[ManagedFieldsEntry], own: ManagedFieldsEntry, old: Doc, new: Doc, *, is_builtin: bool
) -> list[ManagedFieldsEntry]:
    """*entries* after the writer of *own* turned *old* into *new*; an object without entries gets none.

    *old* and *new* are as `written_part` gives them; an empty *old* is a create.
    """
    if not entries and old:
        return entries
    written: set[Path] = set()
    gone: set[Path] = set()
    _compare(old, new, (), written, gone, is_builtin=is_builtin)
    if not written and not gone:
        return entries
    previous = next((entry for entry in entries if entry.is_by(own)), None)
    after = []
    for entry in entries:
        if entry is previous and written:
            continue
        fields = entry.fields
        if left := fields - written - gone:
            after.append(entry if left == fields else entry.with_fields(left))
    if written:
        kept = previous.fields - gone if previous else set()
        after.append(own.with_fields(written | kept))
    return in_order(after)


def in_order(entries: list[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    """Appliers first, then by time, as the real server has them."""
    return sorted(
        entries,
        key=lambda each: (each.operation, each.time or "", each.manager, each.api_version, each.subresource),
    )


def written_part(metadata: Any, rest: Doc) -> Doc:
    """The part of an object that is recorded, of its metadata (a struct) and the *rest*."""
    values = ((field, getattr(metadata, name)) for field, name in _WRITTEN_METADATA.items())
    return {**rest, "metadata": {field: value for field, value in values if value}}


def encode_fields(paths: set[Path]) -> Doc:
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
