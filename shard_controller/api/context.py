"""Context of a reconcile: the object, its controlled and watched objects from the cache, and fenced writes.

Owns the staged status of one reconcile and its unanswered creates. `sync_context` is the same for functions that run
in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import structlog

from kubeio.errors import InputError, NotFound
from kubeio.models import Meta, Object, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder, Regarding, Type
from shard_controller.api.compute import ComputePool
from shard_controller.api.conditions import Conditions
from shard_controller.declare.errors import Elsewhere, NotOurs, PermanentError, Refused
from shard_controller.declare.resource import Resource
from shard_controller.objects import patching
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache, is_controlled, version_of
from shard_controller.shard.writer import FencedWriter, decode_map

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_MAX_WORD = 128
_MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Dependencies that all reconciles of one process share."""

    caches: Caches
    writer: FencedWriter
    events: EventRecorder
    compute: ComputePool
    log: structlog.stdlib.BoundLogger
    """With the controller's name bound."""


class Context(Generic[M]):
    """One object, for the length of one reconcile.

    `object` is the model, `meta` its metadata; both show the version that the reconcile began with.
    Every write carries the fence: a replica that lost the object is refused by the server.
    """

    def __init__(self, model: M, current: Object, around: Surroundings) -> None:
        self.object = model
        self.meta: Meta = current.meta
        self.status: dict[str, object] = {}
        """Fields of the status to be written at the end, together with the conditions, if they change anything."""
        self._current = current
        self._around = around
        self._decoded: dict[str, Any] | None = None
        self._log: structlog.stdlib.BoundLogger | None = None
        self._conditions: Conditions | None = None
        self._creates: set[asyncio.Task[Object | Exception]] = set()
        self._is_over = False

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger with the controller and the object's key bound."""
        if self._log is None:
            self._log = self._around.log.bind(object=str(self.meta.key))
        return self._log

    @property
    def conditions(self) -> Conditions:
        """The conditions of the object, to be staged; written once at the end."""
        if self._conditions is None:
            existing = self._old_status().get("conditions")
            self._conditions = Conditions(
                existing if isinstance(existing, list) else [],
                generation=self.meta.generation,
                wall=self._around.writer.clock.wall,
            )
        return self._conditions

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
    def version(self) -> int:
        """The newest version of the object that this reconcile has seen or written."""
        return version_of(self._current.meta)

    @property
    def is_deleting(self) -> bool:
        """Whether the object has a deletionTimestamp: it waits for its finalizers."""
        return self.meta.deletion_timestamp is not None

    @property
    def ring(self) -> str:
        """Name of the ring; empty outside one."""
        return self._around.writer.ownership.ring

    @property
    def shard(self) -> str:
        """Name of this life of this replica."""
        return self._around.writer.ownership.shard

    @property
    def fencing_token(self) -> int:
        """For systems outside Kubernetes that can refuse a smaller one: it grows with every change of the owner.

        It compares for one object (uid) and one history of the API server. 0: no owner came before, the sharder writes
        no turns, or there is no ring.
        """
        return self._around.writer.ownership.token(self.meta)

    @property
    def unfenced(self) -> Client:
        """The plain client, for objects outside the ring: nothing keeps a former owner from writing through it."""
        return self._around.writer.client

    def get_owned(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The controlled object *name* from the cache, in the object's namespace unless told otherwise.

        None says only that the cache has none: it may lag. Raises: InputError, msgspec.ValidationError.
        """
        kind = self._kind(resource)
        found = kind.get(self._key(kind, name, namespace))
        return resource.decode(found.raw) if found is not None and self._controls(found.meta) else None

    def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """The object *name* of a watched resource from the cache, in the object's namespace unless told otherwise.

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

        In the object's namespace unless told otherwise; an empty *namespace* means all. *index*: those for which
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
        primary = self._around.caches.primary.resource
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
            raise NotOurs(f"{kind.name} {key}", controller=_controller_name(known.meta))
        if known is not None and self._around.writer.ownership.may_write(known.meta):
            try:
                return resource.decode((await self._bring(kind, known, body)).raw)
            except NotFound:
                pass  # deleted meanwhile
        return resource.decode((await self._create_and_bring(kind, key, body)).raw)

    async def create(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Create the controlled object *name*; if this object has one already, that one is returned unchanged.

        *name* must follow from this object alone, so that a second owner would meet the same name.
        Raises: InputError for another namespace than the object's, NotOurs, Elsewhere, KubeError.
        """
        kind = self._kind(resource)
        return resource.decode((await self._create(kind, self._child_key(kind, name, namespace), body)).raw)

    async def delete(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> None:
        """Delete the controlled object *name* in the version that the cache shows; nothing if there is none.

        Raises: Refused if it is another version by now, Elsewhere if that version is not this shard's.
        """
        kind = self._kind(resource)
        found = kind.meta(self._key(kind, name, namespace))
        if found is None or not self._controls(found):
            return
        if not self._around.writer.ownership.may_write(found):
            raise Elsewhere(f"{kind.name} {found.key}", shard="")
        await self._around.writer.delete(kind, found)

    async def delete_self(self) -> None:
        """Delete the object itself, in the version that this reconcile has seen or written. Raises: Refused."""
        await self._around.writer.delete(self._around.caches.primary, self._current.meta)

    async def patch(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the object itself (None removes a field), as one JSON Patch behind the fence."""
        for field in change:
            _check_shows(self._around.caches.primary, field)
        await self._patch_self(patching.extend(JsonPatch(), decode_map(self._current.raw), change))

    async def patch_status(self, change: Mapping[str, object]) -> None:
        """Merge *change* into the status at once. To write once at the end, use `status` and `conditions`."""
        await self._write_status(dict(change))

    def event(
        self,
        reason: str,
        note: str,
        type: Type = "Normal",  # noqa: A002 - the API's word
        *,
        action: str = "Reconcile",
    ) -> None:
        """Tell people about this object (`kubectl events`): best effort, written later, repetitions are counted.

        *reason* and *action* are words in CamelCase. Without the right to write Events the log says so once.
        Raises: ValueError.
        """
        for field, word in (("reason", reason), ("action", action)):
            if not 0 < len(word) <= _MAX_WORD:
                raise ValueError(f"event {field}={word!r}: a word of 1 to {_MAX_WORD} characters is required")
        if type not in ("Normal", "Warning"):
            raise ValueError(f"event type={type!r}: 'Normal' or 'Warning' is required")
        regarding = Regarding.of(self._around.caches.primary.resource, self.meta)
        self._around.events.record(regarding, reason=reason, action=action, note=note, type=type)

    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the pure *function* in a process of a pool, and return its result: the event loop goes on meanwhile.

        *function* stands at the top of a module; arguments and result are pickled. A call that the reconcile's end
        cuts off keeps the key busy until its result is dropped.
        Raises: InputError, BrokenExecutor, errors of *function*.
        """
        return await self._around.compute.run(function, *args, **kwargs)

    async def write_finalizers(self, wanted: Sequence[str]) -> None:
        """Replace the finalizers if they are still the ones we know. `runner` calls this."""
        pointer, known = "/metadata/finalizers", self._current.meta.finalizers
        patch = (
            JsonPatch().test(pointer, known).replace(pointer, list(wanted))
            if known
            else JsonPatch().add(pointer, list(wanted))
        )
        await self._patch_self(patch)
        self.meta = self._current.meta

    async def write_staged(self) -> None:
        """Write `status` and `conditions` in one fenced JSON Patch, if they change anything. `runner` calls this."""
        conditions = self._conditions.merged() if self._conditions is not None else None
        if conditions is None and not self.status:
            return
        staged = dict(self.status)
        if conditions is not None:
            staged["conditions"] = conditions
        await self._write_status(staged)

    def recover(self) -> None:
        """The reconcile went well: stage that nothing is stalled. `runner` calls this."""
        if self._conditions is not None or b'"Stalled"' in self._current.raw:
            self.conditions.recover()

    def give_in(self, error: PermanentError) -> None:
        """Stage the conditions of *error* and record its event. `runner` calls this."""
        told = (str(error) or error.reason)[:_MAX_MESSAGE]
        self.conditions.stall(error.reason, told)
        self.event(error.reason, told, "Warning")

    def close(self) -> bool:
        """Send no more creates; whether all that were sent are answered. `runner` calls this."""
        self._is_over = True
        return not self._creates

    async def settled(self) -> None:
        """Close, and wait until it is known of every create whether it happened. `runner` calls this."""
        if not self.close():
            await asyncio.wait(self._creates)

    async def _write_status(self, wanted: dict[str, object]) -> None:
        if not wanted:
            return
        _check_shows(self._around.caches.primary, "status")
        if "status" in self._whole():
            patch = patching.extend(JsonPatch(), self._old_status(), wanted, at=("status",))
        else:
            patch = JsonPatch().add("/status", patching.without_none(wanted))
        if not patch.operations:
            return
        await self._patch_self(patch, subresource="status")

    def _whole(self) -> dict[str, Any]:
        """The newest version as a map; without a status it may be empty."""
        if self._decoded is None:
            raw = self._current.raw
            self._decoded = decode_map(raw) if b'"status"' in raw else {}
        return self._decoded

    def _old_status(self) -> dict[str, Any]:
        return _as_map(self._whole().get("status"))

    async def _patch_self(self, patch: JsonPatch, *, subresource: str = "") -> None:
        if patch.operations:
            around = self._around
            primary = around.caches.primary
            try:
                self._current = await around.writer.patch(
                    primary, self._current.meta, patch, subresource=subresource
                )
                self._decoded = None
            except NotFound as error:
                raise _gone(primary, self.meta.key, error) from error

    async def _create(self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]) -> Object:
        """Create in a task that outlives the reconciler's cancellation: its end must be known."""
        if self._is_over:  # a task that the reconcile left behind: nobody would wait for the answer
            raise RuntimeError(f"{kind.name} {key} not created: the reconcile is over; await what it starts")
        task = self._around.writer.start_create(
            kind,
            self._desired(kind, key, body),
            key=key,
            owner_uid=self.uid,
            is_wanted=lambda: not self._is_over,
        )
        self._creates.add(task)
        created = await asyncio.shield(task)
        if isinstance(created, Exception):
            raise created
        return created

    async def _bring(self, kind: ResourceCache, known: Object, body: Mapping[str, object]) -> Object:
        wanted = {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
        for field in wanted:
            _check_shows(kind, field)
        patch = patching.extend(JsonPatch(), decode_map(known.raw), wanted, whole=patching.WHOLE)
        return await self._around.writer.patch(kind, known.meta, patch) if patch.operations else known

    async def _create_and_bring(
        self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]
    ) -> Object:
        created = await self._create(kind, key, body)
        try:
            return await self._bring(kind, created, body)
        except NotFound as error:
            raise _gone(kind, key, error) from error

    def _desired(self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]) -> dict[str, object]:
        metadata = _as_map(body.get("metadata"))
        ownership = self._around.writer.ownership
        labels = {**_as_map(metadata.get("labels")), **ownership.create_labels}
        annotations = {**_as_map(metadata.get("annotations")), **ownership.create_annotations}
        primary = self._around.caches.primary.resource
        reference = {
            "apiVersion": primary.api_version,
            "kind": primary.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        whole = {**metadata, "name": key.name, "labels": labels, "ownerReferences": [reference]}
        if annotations:
            whole["annotations"] = annotations
        if key.namespace:
            whole["namespace"] = key.namespace
        return {
            **body,
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "metadata": patching.without_none(whole),
        }

    def _watched(self, resource: Resource[Any]) -> ReadOnlyCache | None:
        return self._around.caches.watched.get(resource.text)

    def _kind(self, resource: Resource[Any]) -> ResourceCache:
        kind = self._around.caches.owned.get(resource.text)
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
        return is_controlled(meta, by=self.meta, of=self._around.caches.primary.resource)


def _gone(kind: ResourceCache, key: ObjectKey, error: NotFound) -> Refused:
    return Refused(f"{kind.name} {key}", status=error.status, message=error.message)


def _controller_name(meta: Meta) -> str:
    return f"{meta.controller.kind} {meta.controller.name}" if meta.controller else ""


def _check_shows(kind: ResourceCache, field: str) -> None:
    """Refuse to write a *field* that the cache does not hold: it would be replaced unseen. Raises: InputError."""
    if kind.is_metadata_only and field != "metadata":
        raise InputError(
            "stored",
            "metadata",
            f"does not show {field} of {kind.name}, which this write would replace",
            "use another form, or write it through ctx.unfenced",
        )


def _as_map(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
