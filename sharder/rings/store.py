"""The ring's own object, and the writes to it: finalizer, immutable fields, status.

`ClusterRingStore` is the ControllerRing. `FileRingStore` serves a ring that is defined in a file: one Lease beside the
shards' Leases keeps the state that outlives the process. That takes no further right, and no ring distributes Leases.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from kubeio.errors import AlreadyExists, Conflict, NotFound
from kubeio.leases.lease import Leases
from kubeio.models import Lease, Meta
from kubeio.patch import JsonPatch, MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from kubeio.rest.events import Regarding
from sharder.ringspec.spec import LONGEST_LEASE_S
from sharder.ringspec.worked import read_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.rest.client import Client
    from sharder.ringspec.spec import RingResource

FINALIZER: Final = "ringleader.dev/ring"
RECORD: Final = "ringleader.dev/ring-record"
"""Annotation of the Lease that keeps the metadata and status of a ring from a file."""
RECORD_HOLDER: Final = "ringleader-sharder"
"""Holder of that Lease: an object labelled with its name must not have it taken and deleted like a replica's."""
LONGEST_LEASE: Final = "longestLeaseDurationSeconds"
"""Field of the status."""
_ATTEMPTS: Final = 5


class Ring(msgspec.Struct, frozen=True):
    """A ring as it is stored. *spec* is what a person wrote: `parse_spec` checks it."""

    metadata: Meta
    spec: object = None
    status: dict[str, object] = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def resources(self) -> tuple[RingResource, ...]:
        """Resources that the spec names, unchecked."""
        return read_resources(self.spec.get("resources") if isinstance(self.spec, dict) else None)

    @property
    def worked(self) -> tuple[RingResource, ...]:
        """Resources that are distributed, or once were."""
        return read_resources(self.status.get("worked"))

    @property
    def longest_lease_s(self) -> int:
        """Longest lease duration with which a replica may still work, in seconds; 0 if nothing is remembered."""
        found = self.status.get(LONGEST_LEASE)
        return min(found, LONGEST_LEASE_S) if isinstance(found, int) else 0

    @property
    def sharder(self) -> str:
        """Implementation that works the ring; empty before one does."""
        return str(self.status.get("sharder") or "")


class RingStore(Protocol):
    """One ring's own object. Every method raises KubeError."""

    @property
    def regarding(self) -> Regarding:
        """The ring as what an Event is about."""

    async def read(self) -> Ring:
        """The newest state, by a consistent read. Raises NotFound if the ring is gone."""

    async def merge(self, metadata: Mapping[str, object], *, version: str) -> Ring:
        """Merge *metadata* into the version that was read. Raises Conflict if there is a newer one."""

    async def merge_status(self, status: Mapping[str, object], *, version: str = "") -> Ring:
        """Merge *status* into the ring's; with *version* only into that one. Raises Conflict, NotFound."""

    async def leave(self) -> None:
        """Every object is given up and no Lease is held: let the ring go."""


class ClusterRingStore:
    """The ControllerRing with *uid*, and none that is created under its name after it."""

    def __init__(self, client: Client, name: str, *, uid: str) -> None:
        self._client = client
        self._name = name
        self._uid = uid

    @property
    def regarding(self) -> Regarding:
        return Regarding(CONTROLLER_RINGS.api_version, CONTROLLER_RINGS.kind, self._name, "", self._uid)

    async def read(self) -> Ring:
        found = await self._client.get(CONTROLLER_RINGS, self._name, type=Ring)
        if found.metadata.uid != self._uid:
            attempted = f"GET {CONTROLLER_RINGS.path(name=self._name)}"
            message = f"uid is {found.metadata.uid}, was {self._uid}: another ring has the name"
            raise NotFound(attempted, status=404, reason="NotFound", message=message)
        return found

    async def merge(self, metadata: Mapping[str, object], *, version: str) -> Ring:
        patch = MergePatch({"metadata": {**metadata, "resourceVersion": version}})
        return await self._client.patch(CONTROLLER_RINGS, self._name, patch, type=Ring)

    async def merge_status(self, status: Mapping[str, object], *, version: str = "") -> Ring:
        change: dict[str, object] = {"status": status}
        if version:
            change["metadata"] = {"resourceVersion": version}
        return await self._client.patch(
            CONTROLLER_RINGS,
            self._name,
            MergePatch(change),
            subresource="status",
            type=Ring,
            field_manager="ringleader-sharder",
        )

    async def leave(self) -> None:
        found = (await self.read()).metadata
        if FINALIZER not in found.finalizers:
            return
        at = f"/metadata/finalizers/{found.finalizers.index(FINALIZER)}"
        patch = JsonPatch().test("/metadata/uid", self._uid).test(at, FINALIZER).remove(at)
        await self._client.patch(CONTROLLER_RINGS, self._name, patch, type=bytes)


def record_name(ring: str) -> str:
    """Name of the Lease that remembers a ring from a file."""
    return f"ringleader-ring-{ring}"


class FileRingStore:
    """A ring in a file, with its record in a Lease of *namespace*. *ring* is the file's present content."""

    def __init__(self, client: Client, ring: Ring, *, namespace: str) -> None:
        self.ring = ring
        self.is_left = False
        self._is_leaving = False
        self._leases = Leases(client, namespace)
        self._name = record_name(ring.name)
        self._uid = ""

    @property
    def regarding(self) -> Regarding:
        return Regarding(LEASES.api_version, LEASES.kind, self._name, self._leases.namespace, self._uid)

    async def read(self) -> Ring:
        return self._merged(await self._read())

    async def merge(self, metadata: Mapping[str, object], *, version: str) -> Ring:
        return await self._write({"metadata": metadata}, version=version)

    async def merge_status(self, status: Mapping[str, object], *, version: str = "") -> Ring:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._write({"status": status}, version=version)
            except Conflict:
                if version:
                    raise
        return await self._write({"status": status}, version=version)

    async def leave(self) -> None:
        self._is_leaving = True  # a status that comes late must not make the Lease again
        with suppress(NotFound):
            await self._leases.delete(await self._leases.get(self._name))
        self.is_left = True

    async def _read(self) -> Lease:
        """The Lease; one that does not exist yet has no version."""
        try:
            return await self._leases.get(self._name)
        except NotFound:
            return Lease(Meta(name=self._name, namespace=self._leases.namespace))

    async def _write(self, change: Mapping[str, object], *, version: str) -> Ring:
        lease = await self._read()
        if version and version != lease.metadata.resource_version:
            raise Conflict(
                f"PUT {self._name}", status=409, reason="Conflict", message="the ring's record is newer"
            )
        record = merged(_remembered(lease), change)
        lease.metadata.annotations = {
            **lease.metadata.annotations,
            RECORD: msgspec.json.encode(record).decode(),
        }
        lease.spec.holder_identity = lease.spec.holder_identity or RECORD_HOLDER
        return self._merged(await self._put(lease))

    async def _put(self, lease: Lease) -> Lease:
        if lease.metadata.resource_version:
            return await self._leases.swap(lease)
        if self._is_leaving:
            raise NotFound(f"PUT {self._name}", status=404, reason="NotFound", message="the ring is let go")
        try:
            return await self._leases.create(lease)
        except AlreadyExists as error:
            raise Conflict(
                error.attempted, status=error.status, reason=error.reason, message=error.message
            ) from error

    def _merged(self, lease: Lease) -> Ring:
        """The ring of the file with the record in *lease* over it."""
        self._uid = lease.metadata.uid
        whole = merged(msgspec.to_builtins(self.ring), _remembered(lease))
        ring = msgspec.convert(whole, Ring, strict=False)
        ring.metadata.resource_version = lease.metadata.resource_version
        return ring


def _remembered(lease: Lease) -> dict[str, object]:
    """Record in the Lease's annotation; empty if an edit made it unreadable."""
    try:
        return msgspec.json.decode(lease.metadata.annotations.get(RECORD, "{}"), type=dict[str, object])
    except msgspec.DecodeError:
        return {}


def merged(target: Mapping[str, object], change: Mapping[str, object]) -> dict[str, object]:
    """*target* after the merge patch *change* (RFC 7396)."""
    result = dict(target)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            old = result.get(name)
            result[name] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[name] = value
    return result
