"""Context of a reconcile: the object, its controlled and watched objects from the cache, and fenced writes.

`session` has the state behind it; `sync_context` is the same for functions that run in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import structlog

from kubeio.errors import InputError, NotFound
from kubeio.models import Meta, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.rest.client import Client
from kubeio.rest.events import Type
from shard_controller.api.conditions import Conditions
from shard_controller.api.session import ReconcileSession, check_shows
from shard_controller.declare.errors import Elsewhere, NotOurs
from shard_controller.declare.resource import Resource
from shard_controller.objects import patching
from shard_controller.objects.caches import ReadOnlyCache, ResourceCache, is_controlled
from shard_controller.shard.writer import decode_map

M = TypeVar("M")
T = TypeVar("T")

_MAX_REASON = 128


class Context(Generic[M]):
    """One object, for the length of one reconcile.

    `object` is the model, `meta` its metadata; both show the version that the reconcile began with.
    Every write carries the fence: a replica that lost the object is refused by the server.
    """

    def __init__(self, model: M, session: ReconcileSession) -> None:
        self.object = model
        self.meta: Meta = session.meta
        self.status: dict[str, object] = {}
        """Fields of the status to be written at the end, together with the conditions, if they change anything."""
        self._session = session

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger with the controller and the object's key bound."""
        return self._session.log

    @property
    def conditions(self) -> Conditions:
        """The conditions of the object, to be staged; written once at the end."""
        return self._session.conditions

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
        return self._session.writer.ownership.ring

    @property
    def shard(self) -> str:
        """Name of this shard: one run of this replica's process."""
        return self._session.writer.ownership.shard

    @property
    def fencing_token(self) -> int:
        """For systems outside Kubernetes that can refuse a smaller one: it grows with every change of the owner.

        It compares for one object (uid) and one history of the API server. 0: no owner came before, the sharder writes
        no turns, or there is no ring.
        """
        return self._session.writer.ownership.token(self.meta)

    @property
    def unfenced(self) -> Client:
        """The plain client, for objects outside the ring: nothing keeps a former owner from writing through it."""
        return self._session.writer.client

    def get_owned(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The controlled object *name* from the cache, in the object's namespace by default.

        None says only that the cache has none: it may lag. Raises: InputError, msgspec.ValidationError.
        """
        kind = self._kind(resource)
        found = kind.get(self._key(kind, name, namespace))
        return resource.decode(found.raw) if found is not None and self._controls(found.meta) else None

    def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The object *name* of a watched resource from the cache, in the object's namespace by default.

        Of an owned resource it is `get_owned`. None says only that the cache has none: it may lag.
        Raises: InputError, msgspec.ValidationError.
        """
        watched = self._watched(resource)
        if watched is None:
            return self.get_owned(resource, name, namespace=namespace)
        found = watched.store.get(self._key(watched, name, namespace))
        return resource.decode(found.raw) if found is not None else None

    def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[T]:
        """Objects of a watched resource in the cache, by namespace and name; of an owned one those of this object.

        In the object's namespace by default; an empty *namespace* means all. *index*: those for which
        that index gives that value, as in `index=("by-node", "node-7")`; without it the cost is O(all objects).
        A watched object that does not fit its model is logged and left out: it concerns others too.
        Raises: InputError, msgspec.ValidationError for an owned one.
        """
        watched = self._watched(resource)
        kind = watched or self._kind(resource)
        where = self.namespace if namespace is None else namespace
        anywhere = not where or not kind.resource.namespaced
        known = self._known(kind, index) if watched else self._children(kind)
        if index is not None and watched is None:
            known = [key for key in kind.by_index(*index) if key in known]
        keys = sorted(key for key in known if anywhere or key.namespace == where)
        objects = [found for key in keys if (found := kind.get(key)) is not None]
        if watched is None:
            return [resource.decode(found.raw) for found in objects]
        return [model for found in objects if (model := watched.decode(resource, found)) is not None]

    def _children(self, kind: ResourceCache) -> Sequence[ObjectKey]:
        primary = self._session.caches.primary.resource
        return [meta.key for meta in kind.children(self.meta, of=primary)]

    @staticmethod
    def _known(kind: ResourceCache, index: tuple[str, str] | None) -> Sequence[ObjectKey]:
        return kind.store.keys() if index is None else kind.by_index(*index)

    async def apply(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Have a controlled object *name* that shows *body*: create it, or change what differs.

        Sets what *body* names and leaves other fields alone, but replaces `data`-like maps as a whole.
        Writes nothing if nothing differs. A namespaced object controls objects of its own namespace only.
        Raises: InputError, Refused, NotOurs, Elsewhere, KubeError.
        """
        kind = self._kind(resource)
        key = self._child_key(kind, name, namespace)
        known = kind.get(key)
        if known is not None and not self._controls(known.meta):
            raise NotOurs(f"{kind.name} {key}", controller=str(known.meta.controller or ""))
        if known is not None and self._session.writer.ownership.may_write(known.meta):
            try:
                return resource.decode((await self._session.apply(kind, known, body)).raw)
            except NotFound:
                pass  # deleted meanwhile
        return resource.decode((await self._session.create_and_apply(kind, key, body)).raw)

    async def create(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Create the controlled object *name*; if this object has one already, that one is returned unchanged.

        *name* must follow from this object alone, so that a second owner would meet the same name.
        Raises: InputError for another namespace than the object's, NotOurs, Elsewhere, KubeError.
        """
        kind = self._kind(resource)
        key = self._child_key(kind, name, namespace)
        return resource.decode((await self._session.create(kind, key, body)).raw)

    async def delete(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> None:
        """Delete the controlled object *name* in the version that the cache shows; nothing if there is none.

        Raises: Refused if it is another version by now, Elsewhere if that version is not this shard's.
        """
        kind = self._kind(resource)
        found = kind.meta(self._key(kind, name, namespace))
        if found is None or not self._controls(found):
            return
        if not self._session.writer.ownership.may_write(found):
            raise Elsewhere(f"{kind.name} {found.key}", shard="")
        await self._session.writer.delete(kind, found)

    async def delete_self(self) -> None:
        """Delete the object itself. Raises: Refused if others changed more than its status since it was read."""
        await self._session.writer.delete(self._session.caches.primary, self._session.seen)

    async def patch(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the object itself (None removes a field), as one JSON Patch behind the fence."""
        for field in change:
            check_shows(self._session.caches.primary, field)
        await self._session.patch(patching.extend(JsonPatch(), decode_map(self._session.current.raw), change))

    async def patch_status(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the status at once. To write once at the end, use `status` and `conditions`."""
        await self._session.write_status(dict(change))

    def event(
        self,
        reason: str,
        note: str,
        type: Type = "Normal",  # noqa: A002 - the API's name
        *,
        action: str = "Reconcile",
    ) -> None:
        """Record an Event about this object (`kubectl events`): best effort, written later, repetitions are counted.

        *reason* and *action* are in CamelCase. A missing permission to write Events is logged once.
        Raises: ValueError.
        """
        for field, text in (("reason", reason), ("action", action)):
            if not 0 < len(text) <= _MAX_REASON:
                raise ValueError(f"event {field}={text!r}: 1 to {_MAX_REASON} characters are required")
        if type not in ("Normal", "Warning"):
            raise ValueError(f"event type={type!r}: 'Normal' or 'Warning' is required")
        self._session.record(reason, note, type, action=action)

    def _watched(self, resource: Resource[Any]) -> ReadOnlyCache | None:
        return self._session.caches.watched.get(resource.text)

    def _kind(self, resource: Resource[Any]) -> ResourceCache:
        kind = self._session.caches.owned.get(resource.text)
        if kind is not None:
            return kind
        if self._watched(resource) is not None:
            raise InputError(
                "watches",
                resource.text,
                "is read-only: it is outside the ring",
                "use ctx.get and ctx.list; write through ctx.unfenced",
            )
        raise InputError(
            "owns",
            resource.text,
            "is not declared",
            "list it in sc.Controller(..., owns=[...]), or in watches=[sc.Watch(...)] to read what others control",
        )

    def _key(self, kind: ResourceCache, name: str, namespace: str | None) -> ObjectKey:
        where = self.namespace if namespace is None else namespace
        return ObjectKey(where if kind.resource.namespaced else "", name)

    def _child_key(self, kind: ResourceCache, name: str, namespace: str | None) -> ObjectKey:
        """The key of a controlled object. Raises: InputError where garbage collection would delete it."""
        key = self._key(kind, name, namespace)
        if self.namespace and key.namespace != self.namespace:
            raise InputError(
                "namespace",
                key.namespace,
                f"is not that of {self.meta.key}: {kind.name} {key} cannot be controlled by it, "
                "and garbage collection would delete it",
                "leave namespace= out, make the parent cluster-scoped, or write it through ctx.unfenced",
            )
        return key

    def _controls(self, meta: Meta) -> bool:
        return is_controlled(meta, by=self.meta, of=self._session.caches.primary.resource)
