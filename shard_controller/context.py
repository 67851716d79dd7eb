"""What a reconciler gets: its object, its relatives from the cache, and fenced writes.

`Context` for async reconcilers; `SyncContext` has the same names and blocks, for those that run in a thread.
Owns what one reconcile staged and which of its creates are open. Built by `worker`, one per reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import structlog

from kubeio.errors import InputError, NotFound
from kubeio.models import Meta, Object, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.rest.client import Client
from shard_controller import changes
from shard_controller.cache import Cache, Kind
from shard_controller.conditions import Conditions
from shard_controller.declared import Resource
from shard_controller.errors import NotOurs
from shard_controller.writes import Writer, decode_map

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all reconciles of one process share."""

    cache: Cache
    kinds: Mapping[str, Kind]
    """Owned kinds by the text of their `Resource`."""
    writer: Writer
    client: Client
    tasks: asyncio.TaskGroup
    ring: str
    shard: str
    fencing_token: str
    wall: Callable[[], datetime]


class Context(Generic[M]):
    """One object, for the length of one reconcile.

    `object` is the model, `meta` its metadata; both show the version that the reconcile began with.
    Every write carries the fence: a replica that lost the object is refused by the server.
    """

    def __init__(
        self, model: M, current: Object, around: Surroundings, log: structlog.stdlib.BoundLogger
    ) -> None:
        self.object = model
        self.meta: Meta = current.meta
        self.log = log
        self.status: dict[str, object] = {}
        """Fields of the status to be written at the end, together with the conditions, if they change anything."""
        self._current = current
        self._around = around
        self._whole = decode_map(current.raw) if b'"status"' in current.raw else {}
        self._old_status = _as_map(self._whole.get("status"))
        existing = self._old_status.get("conditions")
        self.conditions = Conditions(
            existing if isinstance(existing, list) else [],
            generation=current.meta.generation,
            wall=around.wall,
        )
        self._creates: set[asyncio.Task[Object | Exception]] = set()
        self._is_over = False

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def namespace(self) -> str:
        """Empty for a cluster-scoped object."""
        return self.meta.namespace

    @property
    def uid(self) -> str:
        return self.meta.uid

    @property
    def generation(self) -> int:
        """Version of the spec: what `status.observedGeneration` should say."""
        return self.meta.generation

    @property
    def is_deleting(self) -> bool:
        """Whether the object has a deletionTimestamp: it waits for its finalizers."""
        return self.meta.deletion_timestamp is not None

    @property
    def ring(self) -> str:
        """Name of the ring; empty outside one."""
        return self._around.ring

    @property
    def shard(self) -> str:
        """Name of this life of this replica."""
        return self._around.shard

    @property
    def fencing_token(self) -> str:
        """For systems outside Kubernetes that can refuse a former owner: the name that lives once."""
        return self._around.fencing_token

    @property
    def unfenced(self) -> Client:
        """The plain client, for objects outside the ring: nothing keeps a former owner from writing through it."""
        return self._around.client

    def get_owned(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The controlled object *name* from the cache, in the object's namespace unless told otherwise.

        None says only that the cache has none: it may lag. Raises: InputError, msgspec.ValidationError.
        """
        kind = self._kind(resource)
        found = kind.get(self._key(kind, name, namespace))
        return resource.decode(found.raw) if found is not None and self._controls(found.meta) else None

    async def apply(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Have a controlled object *name* that shows *body*: create it, or change what differs.

        Sets what *body* names and leaves other fields alone, but replaces `data`-like maps as a whole.
        Writes nothing if nothing differs. Raises: Refused, NotOurs, Elsewhere, KubeError.
        """
        kind = self._kind(resource)
        key = self._key(kind, name, namespace)
        known = kind.get(key)
        if known is not None and not self._controls(known.meta):
            raise NotOurs(f"{kind.name} {key}", controller=_controller_name(known.meta))
        if known is not None and self._around.writer.fence.guards(known.meta):
            try:
                return resource.decode((await self._bring(kind, known, body)).raw)
            except NotFound:
                pass  # deleted meanwhile
        created = await self._create(kind, key, body)
        return resource.decode((await self._bring(kind, created, body)).raw)

    async def create(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Create the controlled object *name*; if this object has one already, that one is returned unchanged.

        *name* must follow from this object alone, so that a second owner would meet the same name.
        Raises: NotOurs, Elsewhere, KubeError.
        """
        kind = self._kind(resource)
        return resource.decode((await self._create(kind, self._key(kind, name, namespace), body)).raw)

    async def delete(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> None:
        """Delete the controlled object *name* in the version that the cache shows; nothing if there is none.

        Raises: Refused if it is another version by now.
        """
        kind = self._kind(resource)
        found = kind.meta(self._key(kind, name, namespace))
        if found is not None and self._controls(found):
            await self._around.writer.delete(kind, found)

    async def patch(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the object itself (None removes a field), as one JSON Patch behind the fence."""
        await self._patch_self(changes.extend(JsonPatch(), decode_map(self._current.raw), change))

    async def patch_status(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the status at once. To write once at the end, use `status` and `conditions`."""
        await self._write_status(dict(change))

    async def write_finalizers(self, wanted: list[str]) -> None:
        """Replace the finalizers if they are still the ones we know. The worker calls this."""
        pointer, known = "/metadata/finalizers", self._current.meta.finalizers
        patch = (
            JsonPatch().test(pointer, known).replace(pointer, wanted)
            if known
            else JsonPatch().add(pointer, wanted)
        )
        await self._patch_self(patch)
        self.meta = self._current.meta

    async def write_staged(self) -> None:
        """Write `status` and `conditions` in one fenced JSON Patch, if they change anything. The worker calls this."""
        staged = dict(self.status)
        conditions = self.conditions.merged()
        if conditions is not None:
            staged["conditions"] = conditions
        await self._write_status(staged)

    async def settled(self) -> None:
        """Wait until it is known of every create whether it happened. The worker calls this at the end."""
        self._is_over = True
        if self._creates:
            await asyncio.wait(self._creates)

    async def _write_status(self, wanted: dict[str, object]) -> None:
        if not wanted:
            return
        if "status" in self._whole:
            patch = changes.extend(JsonPatch(), self._old_status, wanted, at=("status",))
        else:
            patch = JsonPatch().add("/status", changes.without_none(wanted))
        if not patch.operations:
            return
        await self._patch_self(patch, subresource="status")
        self._whole = decode_map(self._current.raw)
        self._old_status = _as_map(self._whole.get("status"))

    async def _patch_self(self, patch: JsonPatch, *, subresource: str = "") -> None:
        if patch.operations:
            around = self._around
            self._current = await around.writer.patch(
                around.cache.primary, self._current.meta, patch, subresource=subresource
            )

    async def _create(self, kind: Kind, key: ObjectKey, body: Mapping[str, object]) -> Object:
        """Create in a task that outlives the reconciler's cancellation: its end must be known."""
        around = self._around
        call = around.writer.create(
            kind,
            self._desired(kind, key, body),
            key=key,
            owner_uid=self.uid,
            is_wanted=lambda: not self._is_over,
        )
        task = around.tasks.create_task(_outcome(call), name=f"create {kind.name} {key}")
        self._creates.add(task)
        created = await asyncio.shield(task)
        if isinstance(created, Exception):
            raise created
        return created

    async def _bring(self, kind: Kind, known: Object, body: Mapping[str, object]) -> Object:
        wanted = {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
        patch = changes.extend(JsonPatch(), decode_map(known.raw), wanted, whole=changes.WHOLE)
        return await self._around.writer.patch(kind, known.meta, patch) if patch.operations else known

    def _desired(self, kind: Kind, key: ObjectKey, body: Mapping[str, object]) -> dict[str, object]:
        metadata = _as_map(body.get("metadata"))
        labels = {**_as_map(metadata.get("labels")), **self._around.writer.fence.labels()}
        primary = self._around.cache.primary.resource
        reference = {
            "apiVersion": primary.api_version,
            "kind": primary.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        whole = {**metadata, "name": key.name, "labels": labels, "ownerReferences": [reference]}
        if key.namespace:
            whole["namespace"] = key.namespace
        return {
            **body,
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "metadata": changes.without_none(whole),
        }

    def _kind(self, resource: Resource[Any]) -> Kind:
        kind = self._around.kinds.get(resource.text)
        if kind is None:
            raise InputError(
                "owns", resource.text, "is not declared", "list it in sc.Controller(..., owns=[...])"
            )
        return kind

    def _key(self, kind: Kind, name: str, namespace: str | None) -> ObjectKey:
        where = self.namespace if namespace is None else namespace
        return ObjectKey(where if kind.resource.namespaced else "", name)

    def _controls(self, meta: Meta) -> bool:
        return meta.controller is not None and meta.controller.uid == self.uid


class SyncContext(Generic[M]):
    """A `Context` for reconcilers that are plain functions: the same names, each write blocks the thread."""

    def __init__(self, inner: Context[M], loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop
        self.object = inner.object
        self.meta = inner.meta
        self.log = inner.log
        self.status = inner.status
        self.conditions = inner.conditions
        self.name = inner.name
        self.namespace = inner.namespace
        self.uid = inner.uid
        self.generation = inner.generation
        self.is_deleting = inner.is_deleting
        self.ring = inner.ring
        self.shard = inner.shard
        self.fencing_token = inner.fencing_token

    def get_owned(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """See `Context.get_owned`."""

        async def read() -> T | None:
            return self._inner.get_owned(resource, name, namespace=namespace)

        return self._wait(read())

    def apply(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """See `Context.apply`."""
        return self._wait(self._inner.apply(resource, name, body, namespace=namespace))

    def create(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """See `Context.create`."""
        return self._wait(self._inner.create(resource, name, body, namespace=namespace))

    def delete(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> None:
        """See `Context.delete`."""
        self._wait(self._inner.delete(resource, name, namespace=namespace))

    def patch(self, change: Mapping[str, object]) -> None:
        """See `Context.patch`."""
        self._wait(self._inner.patch(change))

    def patch_status(self, change: Mapping[str, object]) -> None:
        """See `Context.patch_status`."""
        self._wait(self._inner.patch_status(change))

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        """The result of the coroutine *call*, run on the process's event loop."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


async def _outcome(call: Coroutine[Any, Any, Object]) -> Object | Exception:
    """How *call* ended, as a value, so that a failure does not end the group of tasks that it runs in."""
    try:
        return await call
    except Exception as error:  # handed to the reconcile that asked
        return error


def _controller_name(meta: Meta) -> str:
    return f"{meta.controller.kind} {meta.controller.name}" if meta.controller else ""


def _as_map(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
