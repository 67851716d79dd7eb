"""Event handlers: from changes in the caches to keys in the work queue.

Owns the changes that bypass predicates, and the order of the first list. Decides nothing about ownership: it is checked
again when a key leaves the queue.
"""

from __future__ import annotations

from typing import Any

import structlog

from kubeio.models import Meta, ObjectKey
from kubeio.observed import observed
from kubeio.queues.workqueue import Priority
from kubeio.watches.store import Change
from shard_controller.api.controller import Controller
from shard_controller.declare.predicates import PredicateFunction, Snapshot
from shard_controller.declare.request import Request
from shard_controller.declare.resource import Resource
from shard_controller.declare.watches import targets_of
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache, version_of
from shard_controller.reconcile.reconcile_queue import ANY_VERSION, ReconcileQueue
from shard_controller.shard.ownership import Ownership

log = structlog.get_logger("shard_controller")


class EventHandlers:
    """Puts keys of the primary resource (or of roots that are unknown) into *queue*."""

    def __init__(
        self,
        controller: Controller[Any],
        caches: Caches,
        ownership: Ownership,
        queue: ReconcileQueue,
    ) -> None:
        self._caches = caches
        self._ownership = ownership
        self._queue = queue
        self._conditions: dict[ResourceCache, tuple[PredicateFunction, Resource[Any]]] = {}
        if controller.when is not None:
            self._conditions[caches.primary] = (controller.when, controller.resource)
        for owned in controller.owned:
            if owned.when is not None:
                self._conditions[caches.owned[owned.resource.text]] = (owned.when, owned.resource)
        self._listed: dict[Request, None] | None = {}  # until every cache is full, and None from then on

    def changed(self, kind: ResourceCache, change: Change) -> None:
        """An informer saw *change* of an object of the tree: enqueue the roots that it concerns."""
        kind.shown(change)
        if kind is self._caches.primary:
            self._primary_changed(kind, change)
            return
        new = change.new
        if new is not None and self._ownership.is_draining(new):
            root = self._caches.root(kind, new)
            self._queue.add_drained(root, Request(kind.name, change.key))
            self._enqueue(root, priority=Priority.HANDOFF)
        elif self._passes(kind, change):
            for meta in _with_other_roots(change):
                root = self._caches.root(kind, meta)
                self._enqueue(root, priority=self._priority(root, change))

    def passed(self, kind: ResourceCache, streamed: int) -> None:
        """The watch of *kind* is at *streamed*: enqueue the roots of own writes that it will never show."""
        for meta in kind.forget(streamed):
            self.changed(kind, Change(meta.key, meta, None))

    def _primary_changed(self, kind: ResourceCache, change: Change) -> None:
        request = Request(kind.name, change.key)
        is_awaited = self._queue.take_awaited(request)
        if change.new is None:
            self._enqueue(request)
            return
        is_asked_for = self._ownership.is_draining(change.new)
        if is_awaited or is_asked_for or self._passes(kind, change):
            version = version_of(change.new)
            if self._queue.is_newer(request, version):
                priority = Priority.HANDOFF if is_asked_for else self._priority(request, change)
                self._enqueue(request, version, priority=priority)

    def _priority(self, root: Request, change: Change) -> Priority:
        """Queue priority: RESYNC, as for a first list, if an object enters the selection and *root* is settled.

        *root* is settled if its status says that its last change was observed. 20,000 objects enter within a minute
        when a replica joins or dies: changed objects do not wait behind them.
        """
        if change.old is not None or root.resource != self._caches.primary.name:
            return Priority.NORMAL
        found = self._caches.primary.get(root.key)
        seen = observed(found.raw) if found is not None else None
        return Priority.RESYNC if seen is not None and seen.is_settled else Priority.NORMAL

    def watched_changed(self, watched: ReadOnlyCache, change: Change) -> None:
        """An informer saw *change* of an object outside the ring: enqueue the keys of this shard that `map` names."""
        resource = watched.watch.resource
        old = watched.former(change, resource)
        new = watched.present(change, resource)
        if old is not None and new is not None and not self._holds(watched.watch.when, old, new, watched):
            return
        primary = self._caches.primary
        for version in (old, new):
            if version is None:
                continue
            try:
                targets = sorted(targets_of(watched.watch, version))
            except Exception as error:  # whatever a user's function raises
                log.error(
                    "map function failed: nothing enqueued",
                    object=f"{watched.name} {change.key}",
                    error=f"{type(error).__name__}: {error}",
                    exc_info=error,
                )
                continue
            for key in targets:
                if key in primary.store:  # what comes later is reconciled when it comes
                    self._enqueue(Request(primary.name, key))

    def caches_full(self) -> None:
        """Enqueue the objects of every first list behind later changes, those written last first.

        A change that was made while no replica looked is among the last writes: it does not wait for the others.
        """
        listed, self._listed = self._listed, None
        for request in sorted(listed or (), key=self._written_at, reverse=True):
            self._queue.add(request, priority=Priority.RESYNC)

    def _written_at(self, request: Request) -> int:
        meta = self._caches.kind(request.resource).meta(request.key)
        return ANY_VERSION if meta is None else version_of(meta)

    def resync(self, key: ObjectKey) -> None:
        """Enqueue *key* of the primary resource, whether it changed or not: behind everything else."""
        self._queue.add(Request(self._caches.primary.name, key), priority=Priority.RESYNC)

    def _passes(self, kind: ResourceCache, change: Change) -> bool:
        """Whether *change* enqueues a key: always if the runtime needs it, else by the resource's predicate."""
        declared = self._conditions.get(kind)
        if declared is None or change.old is None or change.new is None:
            return True
        if is_of_the_runtime(change.old, change.new) or self._ownership.is_moved(change.old, change.new):
            return True
        condition, resource = declared
        old, new = kind.former(change, resource), kind.present(change, resource)
        return old is None or new is None or self._holds(condition, old, new, kind)

    @staticmethod
    def _holds(
        condition: PredicateFunction | None, old: Snapshot[Any], new: Snapshot[Any], kind: ResourceCache
    ) -> bool:
        if condition is None:
            return True
        try:
            return bool(condition(old, new))
        except Exception as error:  # whatever a user's function raises
            log.error(
                "predicate failed: object enqueued anyway",
                object=f"{kind.name} {new.key}",
                error=f"{type(error).__name__}: {error}",
                exc_info=error,
            )
            return True

    def _enqueue(
        self, request: Request, version: int = ANY_VERSION, *, priority: Priority = Priority.NORMAL
    ) -> None:
        self._queue.changed(request, version)
        if self._listed is not None and priority is not Priority.HANDOFF:
            self._listed[request] = None
        else:
            self._queue.add(request, priority=priority)


def is_of_the_runtime(old: Meta, new: Meta) -> bool:
    """Whether the change is one that finalizers and deletion need, or that of another object of the name. Pure."""
    return (
        old.uid != new.uid
        or old.deletion_timestamp != new.deletion_timestamp
        or old.finalizers != new.finalizers
    )


def _with_other_roots(change: Change) -> list[Meta]:
    """Versions of a controlled object that name different controllers: the former controller is enqueued too."""
    old, new = change.old, change.new
    if old is None or new is None:
        return [meta for meta in (new, old) if meta is not None]
    before, after = old.controller, new.controller
    return [new] if (before and before.uid) == (after and after.uid) else [new, old]
