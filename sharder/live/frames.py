"""Server-sent events of `/debug/rings/events`: the whole document first, then only the changes. Pure.

The event `snapshot` holds everything. `change` holds, for each ring that changed, its changed fields, of members only
those that changed (`members`) or went (`gone`). Values are never differences: a change may be applied twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Document = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def event(name: str, document: object) -> bytes:
    """One server-sent event. JSON has no line breaks, so one line of data is enough."""
    return b"event: " + name.encode() + b"\ndata: " + _encode(document) + b"\n\n"


def changes(old: Mapping[str, Document], new: Mapping[str, Document]) -> Document:
    """Changes from *old* rings to *new* ones: `rings` by name, `gone` the names of those that are not there."""
    found: Document = {}
    rings = {name: changed for name, ring in new.items() if (changed := _ring(old.get(name), ring))}
    if rings:
        found["rings"] = rings
    if gone := [name for name in old if name not in new]:
        found["gone"] = gone
    return found


def _ring(old: Document | None, new: Document) -> Document:
    if old is None:
        return new
    changed = {field: value for field, value in new.items() if field != "members" and old.get(field) != value}
    before, now = old.get("members", {}), new.get("members", {})
    if members := {name: facts for name, facts in now.items() if before.get(name) != facts}:
        changed["members"] = members
    if gone := [name for name in before if name not in now]:
        changed["gone"] = gone
    return changed
