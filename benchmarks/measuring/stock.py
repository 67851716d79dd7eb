"""The objects of a benchmark: made, set back to "no owner", or given to owners, all of them at once.

Never used while something is measured. On a real control plane the values go straight into etcd, on the embedded one
through the API; either way the API server serves them like all others, and a run begins only when the watch has seen
every one in the wanted state.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from benchmarks.measuring.etcd import Etcd
from benchmarks.measuring.observations import NotSeen, Observations, wait_for
from benchmarks.measuring.senders import spread
from kubeio.errors import AlreadyExists
from kubeio.models import HasMeta
from kubeio.patch import MergePatch, Patch
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from sharder.writing.object_writer import FIELD_MANAGER

T = TypeVar("T")
Tick = Callable[[int], None]
Owners = Mapping[str, str]
"""Shard by object's name; an object that is missing has no owner."""

_AT_ONCE: Final = 32
_FILLING: Final = "x" * 620
"""Makes an object of about 1.2 KB, metadata included."""
_TEMPLATE: Final = "site-template"
_MARKER: Final = "site-marker"
_ATTEMPTS: Final = 4
_PLACEHOLDER: Final = "owner-of-the-template"


def object_names(count: int) -> list[str]:
    return [f"site-{index:07d}" for index in range(count)]


@dataclass(frozen=True, slots=True)
class Collection:
    """The objects of *resource* in *namespace*, whose labels are *keys*."""

    client: Client
    resource: ApiResource
    namespace: str
    keys: RingKeys

    def document(self, name: str) -> dict[str, object]:
        """One object as a client creates it."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"html": f"<h1>{name}</h1>{_FILLING}"},
        }

    async def create(self, name: str, kind: type[T]) -> T:
        return await self.client.create(
            self.resource, self.document(name), namespace=self.namespace, type=kind, field_manager="bench"
        )

    async def patch(self, name: str, patch: Patch) -> None:
        """As the sharder writes labels."""
        await self.client.patch(
            self.resource, name, patch, namespace=self.namespace, type=bytes, field_manager=FIELD_MANAGER
        )

    async def delete(self, name: str) -> None:
        await self.client.delete(self.resource, name, namespace=self.namespace)


class StockWriter(Protocol):
    """A way to put objects into a state."""

    collection: Collection

    async def write(self, names: Sequence[str], owners: Owners, tick: Tick) -> None:
        """Let each of *names* exist, with the owner that *owners* gives it and no drain label."""


class EtcdWriter:
    """Writes the value that the API server wrote for one object, with other names, uids and owners."""

    def __init__(self, etcd: Etcd, collection: Collection) -> None:
        self.collection = collection
        self._etcd = etcd
        self._templates: tuple[bytes, bytes] | None = None
        self._uid = ""

    async def write(self, names: Sequence[str], owners: Owners, tick: Tick) -> None:
        bare, owned = await self._read_templates()
        pairs = (
            (self._key(name), self._value(owned if name in owners else bare, name, owners.get(name, "")))
            for name in names
        )
        await self._etcd.put_all(pairs, tick=tick)
        await self._etcd.compact()

    def _key(self, name: str) -> str:
        resource = self.collection.resource
        return f"/registry/{resource.group}/{resource.plural}/{self.collection.namespace}/{name}"

    def _value(self, template: bytes, name: str, owner: str) -> bytes:
        value = template.replace(_TEMPLATE.encode(), name.encode())
        value = value.replace(_PLACEHOLDER.encode(), owner.encode())
        uid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.collection.namespace}/{name}")
        return value.replace(self._uid.encode(), str(uid).encode())

    async def _read_templates(self) -> tuple[bytes, bytes]:
        """One object as the API server stores it: as created, and after the patch that gives it an owner."""
        if self._templates is None:
            made = await self.collection.create(_TEMPLATE, HasMeta)
            self._uid = made.metadata.uid
            bare = await self._etcd.get(self._key(_TEMPLATE))
            patch = patch_of(Assign(_PLACEHOLDER), made.metadata, keys=self.collection.keys)
            await self.collection.patch(_TEMPLATE, patch)
            owned = await self._etcd.get(self._key(_TEMPLATE))
            await self.collection.delete(_TEMPLATE)
            self._templates = bare, owned
        return self._templates


class ApiWriter:
    """Writes through the API server, one object at a time."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def write(self, names: Sequence[str], owners: Owners, tick: Tick) -> None:

        async def write(name: str) -> None:
            await self._write_one(name, owners.get(name))
            tick(1)

        await spread(write, names, at_once=_AT_ONCE)

    async def _write_one(self, name: str, owner: str | None) -> None:
        keys = self.collection.keys
        try:
            await self.collection.create(name, bytes)
            if owner is None:
                return
        except AlreadyExists:
            pass
        await self.collection.patch(
            name, MergePatch({"metadata": {"labels": {keys.shard: owner, keys.drain: None}}})
        )


class Stock:
    """*count* objects, and their state before a row begins."""

    def __init__(self, writer: StockWriter, observations: Observations, count: int) -> None:
        self.collection = writer.collection
        self._writer = writer
        self._observations = observations
        self.names = object_names(count)

    def unlike(self, owners: Owners, names: Sequence[str] | None = None) -> list[str]:
        """Those of *names* (all) that are missing, being drained, or not owned as *owners* says."""
        seen = self._observations.objects
        return [
            name
            for name in (self.names if names is None else names)
            if name not in seen or seen[name].drain is not None or seen[name].owner != owners.get(name, "")
        ]

    async def set(self, owners: Owners, tick: Tick, *, names: Sequence[str] | None = None) -> None:
        """Let each of *names* (all) have its owner in *owners*, and wait until the watch has seen it.

        Only what is not so is written; those are then again as they were when they were made.
        """
        for _ in range(_ATTEMPTS):
            await self.catch_up()
            unlike = self.unlike(owners, names)
            if not unlike:
                return
            await self._writer.write(unlike, owners, tick)
        raise NotSeen(f"{len(unlike)} objects do not stay as they were set, such as {unlike[0]}")

    async def give(self, owners: Owners, tick: Tick) -> None:
        """Write each object once with its owner, while others already work on those that were written."""
        await self._writer.write(list(owners), owners, tick)

    async def set_back(self, names: Sequence[str], tick: Tick) -> None:
        """Let *names* be as they were when they were made, and wait until the watch has seen it."""
        await self._writer.write(names, {}, tick)
        await self.catch_up()
        self._observations.start_over()

    async def catch_up(self) -> None:
        """Wait until the watch has seen every write that the server has accepted so far. No sharder may run.

        A watch is in order: it has seen everything before an object that was made last.
        """
        seen = self._observations.objects
        await self.collection.create(_MARKER, bytes)
        await wait_for(lambda: _MARKER in seen, "the watch to catch up", within_s=120)
        await self.collection.delete(_MARKER)
        await wait_for(lambda: _MARKER not in seen, "the watch to catch up", within_s=120)
