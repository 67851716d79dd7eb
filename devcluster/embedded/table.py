"""Answers as a Table: what `kubectl get` prints. Pure, apart from reading the time for ages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import jsonpath
import msgspec

from devcluster.embedded.registry import Column, Kind, Version
from devcluster.embedded.shapes import decoded_as, partial, whole
from devcluster.embedded.store import Entry

Doc = dict[str, Any]
_NAME: Final = Column("Name", "string", "name", format="name", description="Name of the object")
_DEFAULT: Final = (_NAME, Column("Age", "date", ".metadata.creationTimestamp"))


def columns_of(kind: Kind, version: Version) -> tuple[Column, ...]:
    """Name, then the CRD's own columns; Name and Age if it has none."""
    if kind.builtin:
        return version.columns
    return (_NAME, *version.columns) if version.columns else _DEFAULT


def encode(
    kind: Kind,
    version: Version,
    entries: Sequence[Entry],
    resource_version: str,
    *,
    token: str = "",
    remaining: int | None = None,
    include: str = "Metadata",
    definitions: bool = True,
) -> bytes:
    """A Table of *entries*. *include*: what each row carries besides its cells (None, Metadata, Object)."""
    columns = columns_of(kind, version)
    now = datetime.now(UTC)
    metadata: Doc = {"resourceVersion": resource_version}
    if token:
        metadata["continue"] = token
    if remaining is not None:
        metadata["remainingItemCount"] = remaining
    rows = [
        {"cells": cells(kind, version, columns, entry, now), **_carried(kind, version, entry, include)}
        for entry in entries
    ]
    definition = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": definition if definitions else [],
            "rows": rows,
        }
    )


def _carried(kind: Kind, version: Version, entry: Entry, include: str) -> Doc:
    match include:
        case "None":
            return {}
        case "Object":
            return {"object": msgspec.Raw(whole(kind, version, entry))}
    return {"object": msgspec.Raw(partial(entry))}


def cells(kind: Kind, version: Version, columns: Sequence[Column], entry: Entry, now: datetime) -> list[Any]:
    """One row."""
    if kind.builtin:
        doc = entry.decoded()
        return [_BUILTIN[column.path](doc, now) for column in columns]
    doc = decoded_as(kind, version, entry)
    return [entry.name if column.path == "name" else _cell(column, doc, now) for column in columns]


def _cell(column: Column, doc: Doc, now: datetime) -> Any:
    found = _compiled(column.path).findall(doc)
    if not found:
        return None
    value = found[0]
    match column.type:
        case "date":
            return age(value, now)
        case "string":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value


@lru_cache(maxsize=512)
def _compiled(path: str) -> jsonpath.JSONPath | jsonpath.CompoundJSONPath:
    return jsonpath.compile(path if path.startswith("$") else f"${path}")


def is_column_path(path: str) -> bool:
    """Whether *path* can be a printer column's."""
    try:
        _compiled(path)
    except jsonpath.JSONPathError:
        return False
    return True


def age(timestamp: object, now: datetime) -> str:
    """How long ago *timestamp* was, as kubectl writes it: `45s`, `5m10s`, `3h`, `12d`."""
    if not isinstance(timestamp, str):
        return "<unknown>"
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    seconds = int((now - then).total_seconds())
    if seconds < -1:
        return "<invalid>"
    return _duration(max(0, seconds))


def _duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _created(doc: Doc) -> object:
    return doc["metadata"].get("creationTimestamp")


def _event_time(doc: Doc, *fields: str) -> object:
    series = doc.get("series") or {}
    times = [series.get("lastObservedTime") if field == "series" else doc.get(field) for field in fields]
    return next((time for time in times if time), _created(doc))


def _event_object(doc: Doc) -> str:
    about = doc.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_BUILTIN: Final[dict[str, Callable[[Doc, datetime], Any]]] = {
    "name": lambda doc, now: doc["metadata"]["name"],
    "age": lambda doc, now: age(_created(doc), now),
    "created": lambda doc, now: _created(doc),
    "phase": lambda doc, now: (doc.get("status") or {}).get("phase", ""),
    "data": lambda doc, now: len(doc.get("data") or {}) + len(doc.get("binaryData") or {}),
    "type": lambda doc, now: doc.get("type", ""),
    "holder": lambda doc, now: (doc.get("spec") or {}).get("holderIdentity") or "",
    "reason": lambda doc, now: doc.get("reason", ""),
    "message": lambda doc, now: str(doc.get("message") or "").strip(),
    "object": lambda doc, now: _event_object(doc),
    "last_seen": lambda doc, now: age(_event_time(doc, "series", "lastTimestamp", "eventTime"), now),
}
