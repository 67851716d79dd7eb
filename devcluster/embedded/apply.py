"""Server-side apply, the part of it that controllers and kubectl lean on. Pure.

Who applied what is recorded in managedFields, so that a field which its appliers leave out goes away and two
writers of one field with different values are in conflict. Smaller than the real thing: lists are atomic in every
schema.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from devcluster.embedded.managed_fields import Entries, ManagedFieldsEntry, Path, in_order
from devcluster.embedded.status import Refusal, StatusSubject

Doc = dict[str, Any]
_NOT_OWNED: Final = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            )
        ),
    }
)


def applied(
    live: Doc,
    wanted: Doc,
    entries: Entries,
    own: ManagedFieldsEntry,
    *,
    force: bool,
    subject: StatusSubject,
) -> tuple[Doc, Entries]:
    """The object after the writer of *own* applied *wanted* to *live*, and its entries.

    Raises: 409 naming the other writers of fields that *wanted* would change, unless *force*.
    """
    others = {index: set(entry.fields) for index, entry in enumerate(entries) if not entry.is_by(own)}
    previous = next((entry for entry in entries if entry.is_by(own)), None)
    fields = frozenset(field_paths(wanted))
    contested = [
        (index, path)
        for index, owned in others.items()
        for path in sorted(owned & fields)
        if _at(live, path) != _at(wanted, path)
    ]
    if contested and not force:
        raise _conflict([(entries[index], path) for index, path in contested], subject)
    for index, path in contested:
        others[index].discard(path)
    before = previous.fields if previous else frozenset()
    doc = copy.deepcopy(live)
    for path in sorted(before - fields - set().union(*others.values()), key=len, reverse=True):
        _remove(doc, path)
    for path in fields:
        _put(doc, path, _at(wanted, path))
    for name in ("uid", "resourceVersion"):
        if value := (wanted.get("metadata") or {}).get(name):
            doc.setdefault("metadata", {})[name] = value
    if previous is None or before != fields:
        previous = own.with_fields(fields)
    touched = {index for index, _ in contested}
    kept = [
        entries[index].with_fields(frozenset(owned)) if index in touched else entries[index]
        for index, owned in others.items()
        if owned
    ]
    return doc, in_order([*kept, previous])


def field_paths(doc: Doc, prefix: Path = ()) -> set[Path]:
    """The leaves of *doc* that an applier owns: scalars, lists, empty maps."""
    paths: set[Path] = set()
    for name, value in doc.items():
        path = (*prefix, f"f:{name}")
        if path in _NOT_OWNED:
            continue
        if isinstance(value, dict) and value:
            paths |= field_paths(value, path)
        elif path != ("f:metadata",):
            paths.add(path)
    return paths


def _conflict(contested: list[tuple[ManagedFieldsEntry, Path]], subject: StatusSubject) -> Refusal:
    fields = [(_writer(entry), "." + ".".join(name[2:] for name in path)) for entry, path in contested]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {writer}", "field": field}
        for writer, field in fields
    ]
    details: Doc = {**subject.details(), "causes": causes}
    if len(fields) == 1:
        message = f"Apply failed with 1 conflict: conflict with {fields[0][0]}: {fields[0][1]}"
        return Refusal(409, "Conflict", message, details=details)
    lines: dict[str, list[str]] = {}
    for writer, field in fields:
        lines.setdefault(writer, []).append(f"- {field}")
    listed = [f"conflicts with {writer}:\n" + "\n".join(sorted(lines[writer])) for writer in sorted(lines)]
    message = f"Apply failed with {len(fields)} conflicts: " + "\n".join(listed)
    return Refusal(409, "Conflict", message, details=details)


def _writer(entry: ManagedFieldsEntry) -> str:
    """A writer as the real server names it."""
    subresource = f' with subresource "{entry.subresource}"' if entry.subresource else ""
    version = f" using {entry.api_version}" if entry.operation == "Update" else ""
    return f'"{entry.manager}"{subresource}{version}'


def _at(doc: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(doc, dict):
            return None
        doc = doc.get(name[2:])
    return doc


def _put(doc: Doc, path: Path, value: Any) -> None:
    names = [name[2:] for name in path]
    for name in names[:-1]:
        below = doc.get(name)
        if not isinstance(below, dict):
            below = doc[name] = {}
        doc = below
    if not (value == {} and isinstance(doc.get(names[-1]), dict)):
        doc[names[-1]] = copy.deepcopy(value)


def _remove(doc: Doc, path: Path) -> None:
    """Take the leaf away, and the maps that it leaves empty."""
    parent = _at(doc, path[:-1])
    if isinstance(parent, dict) and path[-1][2:] in parent:
        del parent[path[-1][2:]]
        if not parent and len(path) > 1:
            _remove(doc, path[:-1])
