"""Server-side apply, the part of it that controllers and kubectl lean on. Pure.

Who applied what is recorded in managedFields, so that a field which its appliers leave out goes away and two
appliers of one field with different values are in conflict. Smaller than the real thing in two ways: lists are
atomic whatever their schema says, and fields that were written by other verbs belong to nobody.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from devcluster.embedded.status import Refusal, StatusSubject

Doc = dict[str, Any]
Path = tuple[str, ...]
_NOT_OWNED: Final = frozenset(
    {
        ("apiVersion",),
        ("kind",),
        *(
            ("metadata", name)
            for name in (
                "name",
                "namespace",
                "generateName",
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
    live: Doc, wanted: Doc, *, manager: str, force: bool, now: str, subject: StatusSubject
) -> tuple[Doc, list[Doc]]:
    """(the object after *manager* applied *wanted* to *live*, its managedFields).

    Raises: 409 naming the other appliers of fields that *wanted* would change, unless *force*.
    """
    entries: list[Doc] = copy.deepcopy((live.get("metadata") or {}).get("managedFields") or [])
    others = [entry for entry in entries if entry["manager"] != manager]
    own = next((entry for entry in entries if entry["manager"] == manager), None)
    fields = field_paths(wanted)
    contested = _contested(live, wanted, fields, others)
    if contested and not force:
        raise _conflict(contested, subject)
    for other, path in contested:
        other["fieldsV1"] = encode_fields(decode_fields(other["fieldsV1"]) - {path})
    kept = {path for other in others for path in decode_fields(other["fieldsV1"])}
    before = decode_fields(own["fieldsV1"]) if own else set()
    doc = copy.deepcopy(live)
    for path in sorted(before - fields - kept, key=len, reverse=True):
        _remove(doc, path)
    for path in fields:
        _put(doc, path, _at(wanted, path))
    for name in ("uid", "resourceVersion"):
        if value := (wanted.get("metadata") or {}).get(name):
            doc.setdefault("metadata", {})[name] = value
    if own is None or before != fields:
        own = _entry(wanted, manager, fields, now)
    return doc, [*(other for other in others if other["fieldsV1"]), own]


def field_paths(doc: Doc, prefix: Path = ()) -> set[Path]:
    """The leaves of *doc* that an applier owns: scalars, lists, empty maps."""
    paths: set[Path] = set()
    for name, value in doc.items():
        path = (*prefix, name)
        if path in _NOT_OWNED:
            continue
        if isinstance(value, dict) and value:
            paths |= field_paths(value, path)
        elif path != ("metadata",):
            paths.add(path)
    return paths


def encode_fields(paths: set[Path]) -> Doc:
    """FieldsV1: `{"f:spec": {"f:html": {}}}`."""
    fields: Doc = {}
    for path in sorted(paths):
        level = fields
        for name in path:
            level = level.setdefault(f"f:{name}", {})
    return fields


def decode_fields(fields: Doc, prefix: Path = ()) -> set[Path]:
    paths: set[Path] = set()
    for name, below in fields.items():
        path = (*prefix, name.removeprefix("f:"))
        paths |= decode_fields(below, path) if below else {path}
    return paths


def _contested(live: Doc, wanted: Doc, fields: set[Path], others: list[Doc]) -> list[tuple[Doc, Path]]:
    return [
        (other, path)
        for other in others
        for path in sorted(decode_fields(other["fieldsV1"]) & fields)
        if _at(live, path) != _at(wanted, path)
    ]


def _conflict(contested: list[tuple[Doc, Path]], subject: StatusSubject) -> Refusal:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{other["manager"]}" using {other["apiVersion"]}',
            "field": "." + ".".join(path),
        }
        for other, path in contested
    ]
    told = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    details: Doc = {**subject.details(), "causes": causes}
    return Refusal(409, "Conflict", f"Apply failed with {count}: {told}", details=details)


def _entry(wanted: Doc, manager: str, fields: set[Path], now: str) -> Doc:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": wanted.get("apiVersion", ""),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": encode_fields(fields),
    }


def _at(doc: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(doc, dict):
            return None
        doc = doc.get(name)
    return doc


def _put(doc: Doc, path: Path, value: Any) -> None:
    for name in path[:-1]:
        below = doc.get(name)
        if not isinstance(below, dict):
            below = doc[name] = {}
        doc = below
    if not (value == {} and isinstance(doc.get(path[-1]), dict)):
        doc[path[-1]] = copy.deepcopy(value)


def _remove(doc: Doc, path: Path) -> None:
    """Take the leaf away, and the maps that it leaves empty."""
    parent = _at(doc, path[:-1])
    if isinstance(parent, dict) and path[-1] in parent:
        del parent[path[-1]]
        if not parent and len(path) > 1:
            _remove(doc, path[:-1])
