"""Field managers of an object: who wrote which field, and when, as managedFields show it. Pure.

A server that keeps no managedFields gives none, and the date is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.decoding import decode_pruned
from kubeio.models import Meta

if TYPE_CHECKING:
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard


TOOLS: Final = (
    "ringleader",
    "kubectl",
    "k9s",
    "helm",
    "Helm",
    "argocd",
    "kustomize-controller",
    "kube-controller-manager",
    "kube-apiserver",
    "before-first-apply",
    "node-fetch",
    "Mozilla",
    "curl",
    "python-requests",
)
"""Beginnings of field managers that people and the cluster itself write with, and our own."""


def is_tool(manager: str) -> bool:
    """Whether *manager* is no controller."""
    return manager.startswith(TOOLS)


def writers_of(ring: Ring, shards: Iterable[Shard]) -> set[str]:
    """Names under which the shards of *ring* write: from their Leases, and what is usual for older ones."""
    usual = {ring.name} | {each.main.resource for each in ring.spec.resources}
    return usual.union(*((shard.name, shard.member, shard.field_manager) for shard in shards))


class ManagedFields(msgspec.Struct, rename="camel"):
    """The fields that one writer set, and when it last did."""

    manager: str = ""
    subresource: str = ""
    time: str | None = None
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))
    """Not decoded: it is most of an object's metadata."""

    @property
    def is_of_status(self) -> bool:
        return self.subresource == "status" or self.has("status")

    @property
    def at(self) -> datetime | None:
        return instant(self.time)

    def has(self, field: str) -> bool:
        """Whether *field* (a name, or a label's key) is among the fields."""
        return f'"f:{field}"'.encode() in bytes(self.fields_v1)


class DatedMeta(Meta, rename="camel"):
    """ObjectMeta with managedFields."""

    managed_fields: list[ManagedFields] = msgspec.field(default_factory=list)

    def label_written(self, label: str) -> ManagedFields | None:
        """The last writer of *label*, as far as the server kept it."""
        entries = [entry for entry in self.managed_fields if entry.has(label)]
        return max(entries, key=lambda entry: entry.time or "", default=None)

    def spec_written(self) -> ManagedFields | None:
        """The last writer of the spec."""
        entries = [entry for entry in self.managed_fields if entry.has("spec")]
        return max(entries, key=lambda entry: entry.time or "", default=None)


class HasDatedMeta(msgspec.Struct):
    """Any object, read for its metadata and who wrote it."""

    metadata: DatedMeta


_decode = msgspec.json.Decoder(HasDatedMeta).decode


def dated_meta(raw: bytes) -> DatedMeta:
    """Metadata of the object *raw*, with its managedFields."""
    return decode_pruned(_decode, raw).metadata


def instant(text: str | None) -> datetime | None:
    """An instant of the API; None if it is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def seconds_since(text: str | None, now: datetime) -> float | None:
    """Seconds from the instant *text* (RFC 3339) to *now*; None if there is none or it cannot be read."""
    at = instant(text)
    return (now - at).total_seconds() if at is not None else None
