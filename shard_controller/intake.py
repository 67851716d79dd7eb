"""From changes in the caches to keys in the queue: who is woken by what.

Owns what no predicate may hold back, which news is waited for, and which objects have been given up until they change.
Decides nothing about ownership: that is asked again when a key leaves the queue. Fed by `engine`, asked by `worker`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from typing import Any

import structlog

from kubeio.models import Meta, ObjectKey
from kubeio.queues.workqueue import Priority, WorkQueue
from kubeio.watches.store import Change
from shard_controller.api import Controller
from shard_controller.cache import Cache, Kind, Task, WatchedKind, version_of
from shard_controller.declared import Resource
from shard_controller.guard import Guard
from shard_controller.predicates import Condition, Snapshot

log = structlog.get_logger("shard_controller")

_ANY_VERSION = sys.maxsize
_NONE: Set[Task] = frozenset()


class Intake:
    """Puts keys of the primary resource (or of roots that are unknown) into *queue*."""

    def __init__(
        self,
        controller: Controller[Any],
        cache: Cache,
        kinds: Mapping[str, Kind],
        guard: Guard,
        queue: WorkQueue[Task],
    ) -> None:
        self._cache = cache
        self._guard = guard
        self._queue = queue
        self._conditions: dict[Kind, tuple[Condition, Resource[Any]]] = {}
        if controller.when is not None:
            self._conditions[cache.primary] = (controller.when, controller.resource)
        for owned in controller.owned:
            if owned.when is not None:
                self._conditions[kinds[owned.resource.text]] = (owned.when, owned.resource)
        self._listed: set[Task] | None = set()  # until every cache is full, and None from then on
        self._drained: dict[Task, set[Task]] = {}
        self._awaited: set[Task] = set()
        self._under_way: dict[Task, int] = {}  # running, and the newest version that woke it meanwhile
        self._given_up: dict[Task, int] = {}  # not looked at again before a newer version than this

    # -- changes

    def changed(self, kind: Kind, change: Change) -> None:
        """An informer saw *change* of an object of the tree: wake whoever it concerns."""
        kind.shown(change.key, change.new)
        if kind is self._cache.primary:
            self._primary_changed(kind, change)
            return
        new = change.new
        if new is not None and self._guard.is_draining(new):
            root = self._cache.root(kind, new)
            self._drained.setdefault(root, set()).add(Task(kind.name, change.key))
            self._wake(root, priority=Priority.HANDOFF)
        elif self._passes(kind, change):
            for meta in _with_other_roots(change):
                self._wake(self._cache.root(kind, meta))

    def _primary_changed(self, kind: Kind, change: Change) -> None:
        task = Task(kind.name, change.key)
        if change.new is None:
            self._awaited.discard(task)
            self._wake(task)
        elif task in self._awaited or self._passes(kind, change):
            self._awaited.discard(task)
            version = version_of(change.new)
            if version > self._given_up.get(task, -1):
                is_asked_for = self._guard.is_draining(change.new)
                self._wake(task, version, priority=Priority.HANDOFF if is_asked_for else Priority.NORMAL)

    def watched_changed(self, watched: WatchedKind, change: Change) -> None:
        """An informer saw *change* of an object outside the ring: wake what `map` names and this shard has."""
        resource = watched.watch.resource
        old = watched.former(change, resource)
        new = watched.present(change, resource)
        if old is not None and new is not None and not self._holds(watched.watch.when, old, new, watched):
            return
        primary = self._cache.primary
        for version in (old, new):
            if version is None:
                continue
            try:
                targets = watched.watch.targets(version)
            except Exception as error:  # whatever a user's function raises
                log.error(
                    "map failed: it wakes nobody",
                    object=f"{watched.name} {change.key}",
                    error=f"{type(error).__name__}: {error}",
                    exc_info=error,
                )
                continue
            for key in targets:
                if key in primary.store:  # what comes later is reconciled when it comes
                    self._wake(Task(primary.name, key))

    def caches_full(self) -> None:
        """Every first list is in: its objects wait behind what changes from now on, those written last first.

        A change that was made while no replica looked is among the last writes: it does not wait for the others.
        """
        listed, self._listed = self._listed or _NONE, None
        for task in sorted(listed, key=self._written_at, reverse=True):
            self._queue.add(task, priority=Priority.RESYNC)

    def _written_at(self, task: Task) -> int:
        meta = self._cache.kind(task.resource).meta(task.key)
        return _ANY_VERSION if meta is None else version_of(meta)

    def resync(self, key: ObjectKey) -> None:
        """The turn of *key* of the primary resource has come, whether it changed or not: behind everything else."""
        self._queue.add(Task(self._cache.primary.name, key), priority=Priority.RESYNC)

    def _passes(self, kind: Kind, change: Change) -> bool:
        """Whether *change* wakes anybody: always if the runtime needs it, else as the kind's predicate says."""
        declared = self._conditions.get(kind)
        if declared is None or change.old is None or change.new is None:
            return True
        if is_of_the_runtime(change.old, change.new) or self._guard.is_moved(change.old, change.new):
            return True
        condition, resource = declared
        old, new = kind.former(change, resource), kind.present(change, resource)
        return old is None or new is None or self._holds(condition, old, new, kind)

    @staticmethod
    def _holds(condition: Condition | None, old: Snapshot[Any], new: Snapshot[Any], kind: Kind) -> bool:
        if condition is None:
            return True
        try:
            return bool(condition(old, new))
        except Exception as error:  # whatever a user's function raises
            log.error(
                "predicate failed: the change counts",
                object=f"{kind.name} {new.key}",
                error=f"{type(error).__name__}: {error}",
                exc_info=error,
            )
            return True

    def _wake(self, task: Task, version: int = _ANY_VERSION, *, priority: Priority = Priority.NORMAL) -> None:
        self._given_up.pop(task, None)
        if task in self._under_way:
            self._under_way[task] = max(self._under_way[task], version)
        if self._listed is not None and priority is Priority.NORMAL:
            self._listed.add(task)
        else:
            self._queue.add(task, priority=priority)

    # -- what the worker tells

    def take_drained(self, task: Task) -> Set[Task]:
        """Controlled objects of *task* that are to be given up; they are not named again."""
        return self._drained.pop(task, _NONE) if self._drained else _NONE

    def put_back(self, task: Task) -> Task:
        """Note that *task* is to be looked at with its root, whose key is given."""
        kind = self._cache.kind(task.resource)
        meta = kind.meta(task.key)
        root = self._cache.root(kind, meta) if meta is not None else task
        if root != task:
            self._drained.setdefault(root, set()).add(task)
        return root

    def await_news(self, task: Task, version: int) -> None:
        """The cache was behind *version* of *task*: what brings it up wakes it, whatever a predicate says."""
        primary = self._cache.primary
        if task.resource != primary.name:
            return
        known = primary.store.meta(task.key)
        if known is not None and version_of(known) >= version:
            self._wake(task)  # it came while that was found out
        else:
            self._awaited.add(task)

    def begins(self, task: Task) -> None:
        """A reconcile of *task* begins: from now on news is newer than what it sees."""
        self._under_way[task] = -1

    def ends(self, task: Task) -> None:
        self._under_way.pop(task, None)

    def give_up(self, task: Task, version: int) -> None:
        """Look at *task* no more until something newer than *version*, which we may have written, wakes it."""
        if self._under_way.get(task, -1) <= version:
            self._given_up[task] = version

    def has_given_up(self, task: Task) -> bool:
        return task in self._given_up


def is_of_the_runtime(old: Meta, new: Meta) -> bool:
    """Whether the change is one that finalizers and deletion need, or that of another object of the name. Pure."""
    return (
        old.uid != new.uid
        or old.deletion_timestamp != new.deletion_timestamp
        or old.finalizers != new.finalizers
    )


def _with_other_roots(change: Change) -> list[Meta]:
    """The versions of a controlled object that name different controllers: what lost it is concerned too."""
    old, new = change.old, change.new
    if old is None or new is None:
        return [meta for meta in (new, old) if meta is not None]
    before, after = old.controller, new.controller
    return [new] if (before and before.uid) == (after and after.uid) else [new, old]
