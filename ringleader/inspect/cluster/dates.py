"""Since when something stands in an object: what managedFields tell. Pure.

An API server notes for each writer which fields it set and when it last set one of them; a server that keeps no such
notes gives none, and the date is unknown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kubeio.models import Meta


class ManagedFields(msgspec.Struct, rename="camel"):
    """What one writer set, and when it last did."""

    manager: str = ""
    subresource: str = ""
    time: str | None = None
    fields_v1: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")

    @property
    def is_of_status(self) -> bool:
        return self.subresource == "status" or "f:status" in self.fields_v1


class DatedMeta(Meta):
    """ObjectMeta with managedFields."""

    managed_fields: list[ManagedFields] = msgspec.field(default_factory=list)

    def label_written(self, label: str) -> ManagedFields | None:
        """Who wrote *label* last, as far as the server kept it."""
        for entry in self.managed_fields:
            labels = (entry.fields_v1.get("f:metadata") or {}).get("f:labels") or {}
            if f"f:{label}" in labels:
                return entry
        return None

    def spec_written(self) -> ManagedFields | None:
        """Who wrote the spec last."""
        entries = [entry for entry in self.managed_fields if "f:spec" in entry.fields_v1]
        return max(entries, key=lambda entry: entry.time or "", default=None)


class HasDatedMeta(msgspec.Struct):
    """Any object, read for its metadata and who wrote it."""

    metadata: DatedMeta


def seconds_since(instant: str | None, now: datetime) -> float | None:
    """How long before *now* *instant* (RFC 3339) was, in seconds; None if there is none or it cannot be read."""
    if not instant:
        return None
    try:
        return (now - datetime.fromisoformat(instant)).total_seconds()
    except (ValueError, TypeError):
        return None
