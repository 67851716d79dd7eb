"""Reconcile session: the state of one reconcile behind its `Context`.

Owns the newest version of the object, the staged conditions, and the creates whose outcome is not known yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from kubeio.errors import InputError, NotFound
from kubeio.models import Meta, Object, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.rest.events import EventRecorder, Regarding, Type
from shard_controller.api.conditions import Conditions, StagedConditions
from shard_controller.declare.errors import PermanentError, Refused
from shard_controller.objects import patching
from shard_controller.objects.caches import Caches, ResourceCache
from shard_controller.shard.writer import FencedWriter, decode_map

_MAX_MESSAGE = 1024


class ReconcileSession:
    """One reconcile of *current*, an object of the primary resource of *caches*. *log* names the controller."""

    # set when first needed: most reconciles need none of these
    _log: structlog.stdlib.BoundLogger | None = None
    _decoded: dict[str, Any] | None = None
    _conditions: StagedConditions | None = None
    _creates: set[asyncio.Task[Object | Exception]] | None = None
    _is_over = False

    def __init__(
        self,
        current: Object,
        caches: Caches,
        writer: FencedWriter,
        events: EventRecorder,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.current = current
        self._read = current
        self.meta: Meta = current.meta
        """Metadata as the reconcile began, but for finalizers that it added or took off."""
        self.caches = caches
        self.writer = writer
        self._events = events
        self._base_log = log

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger with the controller and the object's key bound."""
        if self._log is None:
            self._log = self._base_log.bind(object=str(self.meta.key))
        return self._log

    @property
    def seen(self) -> Meta:
        """The newest version of the object in which others changed nothing but status and finalizers since it was read.

        The answer to an own write is that version, unless it shows that others wrote before it.
        """
        is_own = _is_same(self._read, self.current)
        return self.current.meta if is_own else self._read.meta

    @property
    def is_deleting(self) -> bool:
        return self.meta.deletion_timestamp is not None

    @property
    def conditions(self) -> Conditions:
        """The conditions of the object, to be staged."""
        return self._staged_conditions()

    def _staged_conditions(self) -> StagedConditions:
        if self._conditions is None:
            existing = self._old_status().get("conditions")
            self._conditions = StagedConditions(
                existing if isinstance(existing, list) else [],
                generation=self.meta.generation,
                wall=self.writer.clock.wall,
            )
        return self._conditions

    def record(self, reason: str, note: str, type: Type, *, action: str = "Reconcile") -> None:  # noqa: A002 - the API's name
        """Record an Event about the object."""
        regarding = Regarding.of(self.caches.primary.resource, self.meta)
        self._events.record(regarding, reason=reason, action=action, note=note, type=type)

    # -- the object itself

    async def patch(self, patch: JsonPatch, *, subresource: str = "") -> None:
        """Send *patch* to the object behind the fence; nothing if it is empty."""
        if patch.operations:
            primary = self.caches.primary
            try:
                self.current = await self.writer.patch(
                    primary, self.current.meta, patch, subresource=subresource
                )
                self._decoded = None
            except NotFound as error:
                raise _gone(primary, self.meta.key, error) from error

    async def write_status(self, wanted: dict[str, object]) -> None:
        """Merge *wanted* into the status, if it changes anything."""
        if not wanted:
            return
        check_shows(self.caches.primary, "status")
        if "status" in self._whole():
            patch = patching.extend(JsonPatch(), self._old_status(), wanted, at=("status",))
        else:
            patch = JsonPatch().add("/status", patching.without_none(wanted))
        await self.patch(patch, subresource="status")

    def has_staged(self, status: Mapping[str, object]) -> bool:
        """Whether there may be something for `write_staged` to write."""
        return bool(status) or self._conditions is not None

    async def write_staged(self, status: Mapping[str, object]) -> None:
        """Write *status* and the staged conditions in one fenced JSON Patch, if they change anything."""
        staged = dict(status)
        conditions = self._conditions.merged() if self._conditions is not None else None
        if conditions is not None:
            staged["conditions"] = conditions
        await self.write_status(staged)

    async def write_finalizers(self, wanted: Sequence[str]) -> None:
        """Replace the finalizers if they are still the ones we know."""
        pointer, known = "/metadata/finalizers", self.current.meta.finalizers
        patch = (
            JsonPatch().test(pointer, known).replace(pointer, list(wanted))
            if known
            else JsonPatch().add(pointer, list(wanted))
        )
        await self.patch(patch)
        self.meta = msgspec.structs.replace(self.meta, finalizers=self.current.meta.finalizers)

    def recover(self) -> None:
        """The reconcile went well: stage that nothing is stalled."""
        if self._conditions is not None or b'"Stalled"' in self.current.raw:
            self._staged_conditions().recover()

    def fail_permanently(self, error: PermanentError) -> None:
        """Stage the conditions of *error* and record its event."""
        message = (str(error) or error.reason)[:_MAX_MESSAGE]
        self._staged_conditions().stall(error.reason, message)
        self.record(error.reason, message, "Warning")

    # -- controlled objects

    async def create(self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]) -> Object:
        """Create a controlled object in a task that outlives the reconciler's cancellation: its end must be known."""
        if self._is_over:  # a task that the reconcile left behind: its answer would not be waited for
            raise RuntimeError(f"{kind.name} {key} not created: the reconcile is over; await what it starts")
        task = self.writer.start_create(
            kind,
            self._desired(kind, key, body),
            key=key,
            owner_uid=self.meta.uid,
            is_wanted=lambda: not self._is_over,
        )
        if self._creates is None:
            self._creates = set()
        self._creates.add(task)
        created = await asyncio.shield(task)
        if isinstance(created, Exception):
            raise created
        return created

    async def apply(self, kind: ResourceCache, known: Object, body: Mapping[str, object]) -> Object:
        """Change what differs between *known* and *body*; the object as it is then."""
        wanted = {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
        for field in wanted:
            check_shows(kind, field)
        patch = patching.extend(JsonPatch(), decode_map(known.raw), wanted, whole=patching.WHOLE)
        return await self.writer.patch(kind, known.meta, patch) if patch.operations else known

    async def create_and_apply(
        self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]
    ) -> Object:
        """Create a controlled object, or change what differs in the one that exists."""
        created = await self.create(kind, key, body)
        try:
            return await self.apply(kind, created, body)
        except NotFound as error:
            raise _gone(kind, key, error) from error

    def close(self) -> bool:
        """Send no more creates; whether all that were sent are answered."""
        self._is_over = True
        return not self._creates

    async def settled(self) -> None:
        """Close, and wait until the outcome of every create is known."""
        if not self.close() and self._creates:
            await asyncio.wait(self._creates)

    def _whole(self) -> dict[str, Any]:
        """The newest version as a map; without a status it may be empty."""
        if self._decoded is None:
            raw = self.current.raw
            self._decoded = decode_map(raw) if b'"status"' in raw else {}
        return self._decoded

    def _old_status(self) -> dict[str, Any]:
        return _as_map(self._whole().get("status"))

    def _desired(self, kind: ResourceCache, key: ObjectKey, body: Mapping[str, object]) -> dict[str, object]:
        metadata = _as_map(body.get("metadata"))
        ownership = self.writer.ownership
        labels = {**_as_map(metadata.get("labels")), **ownership.create_labels}
        annotations = {**_as_map(metadata.get("annotations")), **ownership.create_annotations}
        primary = self.caches.primary.resource
        reference = {
            "apiVersion": primary.api_version,
            "kind": primary.kind,
            "name": self.meta.name,
            "uid": self.meta.uid,
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


def check_shows(kind: ResourceCache, field: str) -> None:
    """Refuse to write a *field* that the cache does not hold: it would be replaced unseen. Raises: InputError."""
    if kind.is_metadata_only and field != "metadata":
        raise InputError(
            "stored",
            "metadata",
            f"does not show {field} of {kind.name}, which this write would replace",
            "use another form, or write it through ctx.unfenced",
        )


def _is_same(old: Object, new: Object) -> bool:
    """Whether two versions of an object differ in status and finalizers at most."""
    if old is new:
        return True
    before, after = old.meta, new.meta
    return (
        before.generation == after.generation
        and before.labels == after.labels
        and before.annotations == after.annotations
        and before.owner_references == after.owner_references
        and before.deletion_timestamp == after.deletion_timestamp
        and (before.generation > 0 or _content(old) == _content(new))
    )


def _content(obj: Object) -> dict[str, object]:
    return {name: value for name, value in decode_map(obj.raw).items() if name not in ("metadata", "status")}


def _gone(kind: ResourceCache, key: ObjectKey, error: NotFound) -> Refused:
    return Refused(f"{kind.name} {key}", status=error.status, message=error.message)


def _as_map(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
