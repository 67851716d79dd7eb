"""The few shapes of the API that we read, as msgspec Structs; everything else stays raw bytes.

Decoding is strict about types and blind to fields it does not name. `gc=False` where no cycle can arise:
the collector is most of the cost of building many small objects.
"""

from __future__ import annotations

from typing import Final

import msgspec

_LONGEST_NAME: Final = 253
_LONGEST_KIND: Final = 63
_LONGEST_API_VERSION: Final = 317
"""A group of 253, a slash, a version of 63."""
_LONGEST_UID: Final = 128
"""The API server writes 36 characters."""


class OwnerReference(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    def __str__(self) -> str:
        """With the uid: one that was created again under its name is another object."""
        return f"{self.kind} {self.name} (uid {self.uid})"

    @property
    def group_kind(self) -> tuple[str, str]:
        """A kind in whatever version: two references to one kind may name different ones."""
        return self.api_version.rpartition("/")[0], self.kind

    @property
    def can_exist(self) -> bool:
        """Whether an object can be called so. The API server accepts any text that is not empty."""
        return (
            0 < len(self.name) <= _LONGEST_NAME
            and "/" not in self.name
            and "%" not in self.name
            and self.name not in (".", "..")
            and len(self.uid) <= _LONGEST_UID
            and len(self.kind) <= _LONGEST_KIND
            and len(self.api_version) <= _LONGEST_API_VERSION
        )


def controller_of(references: list[OwnerReference]) -> OwnerReference | None:
    """The one of *references* with `controller: true`, if any; one to what cannot exist does not count."""
    for found in references:
        if found.controller:
            return found if found.can_exist else None
    return None


class Meta(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """ObjectMeta, without managedFields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    generate_name: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """`controller_of` its references."""
        return controller_of(self.owner_references) if self.owner_references else None


class ObjectKey(msgspec.Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """Namespace (empty if cluster-scoped) and name of an object of a known resource."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectRef(msgspec.Struct, frozen=True, gc=False, order=True):
    """One object of one resource (`websites.example.com`)."""

    resource: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.resource}/{self.key}"


class GroupResource(msgspec.Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """API group (empty for core) and plural name: `websites.example.com`, `secrets`.

    A document may leave the group out, so both have a default; an empty *resource* names nothing.
    """

    group: str = ""
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class HasMeta(msgspec.Struct, gc=False):
    """Any object, read for its metadata only."""

    metadata: Meta


class ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class LeaseSpec(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, gc=False, rename="camel"):
    """coordination.k8s.io/v1 Lease, whole: what is read is what is written back."""

    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Object(msgspec.Struct, frozen=True, gc=False):
    """One version of one object: its metadata decoded, the whole of it as the bytes that came."""

    meta: Meta
    raw: bytes
