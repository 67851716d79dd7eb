"""What kube-controller-manager does for the API: garbage collection by ownerReferences, the end of namespaces
and of CustomResourceDefinitions.

Owns the index from an owner's uid to its dependents and a queue of objects; `work` processes a bounded number of
them, a moment after one was queued.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from devcluster.embedded.deletion import (
    CRD_CLEANUP,
    FOREGROUND,
    ORPHAN,
    DeleteOptions,
    Preconditions,
)
from devcluster.embedded.objects import OwnerReference
from devcluster.embedded.paths import Target
from devcluster.embedded.registry import Kind, Registry
from devcluster.embedded.status import Refusal
from devcluster.embedded.store import Entry, Event, Key
from devcluster.embedded.writes import Request, Writes

GARBAGE_COLLECTOR: Final = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACE_CONTROLLER: Final = "system:serviceaccount:kube-system:namespace-controller"
CRD_CONTROLLER: Final = "system:apiserver"
Where = tuple[str, str, Key]
"""Group, plural, key: one object."""


class _Owned(msgspec.Struct, rename="camel", gc=False):
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class _HasOwned(msgspec.Struct, gc=False):
    metadata: _Owned


_decoder = msgspec.json.Decoder(_HasOwned)


class Collector:
    """Garbage collector and namespace controller."""

    BATCH: Final = 200

    def __init__(self, registry: Registry, writes: Writes, *, wake: Callable[[], None]) -> None:
        self._registry: Final = registry
        self._writes: Final = writes
        self._wake: Final = wake
        self._dependents: dict[str, set[Where]] = {}
        self._due: dict[Where, None] = {}
        self._unclear: dict[Where, None] = {}
        """What is owned by objects of a kind that is not served: looked at again once another kind is."""
        self._watched: set[int] = set()

    def follow(self, kind: Kind) -> None:
        """Listen to the collection of *kind*, once."""
        if id(kind.collection) in self._watched:
            return
        self._watched.add(id(kind.collection))
        group, plural = kind.group, kind.plural
        kind.collection.listeners.append(lambda event: self._note(group, plural, event))
        unclear, self._unclear = self._unclear, {}
        for where in unclear:
            self._add(where)

    def relist(self) -> None:
        """Look at every object anew, as after a restore of a backup: events told of none of them."""
        self._dependents.clear()
        for kind in self._registry:
            for entry in kind.collection.entries():
                self._note(kind.group, kind.plural, Event(entry.version, None, entry))

    def work(self) -> bool:
        """Process at most `BATCH` queued objects; whether more are queued."""
        for where in list(self._due)[: self.BATCH]:
            del self._due[where]
            self._process(where)
        return bool(self._due)

    def _note(self, group: str, plural: str, event: Event) -> None:
        where = (group, plural, event.key)
        old, new = event.old, event.new
        if old is not None and old.owned:
            for owner in _decoder.decode(old.raw).metadata.owner_references:
                self._dependents.get(owner.uid, set()).discard(where)
        if new is not None and new.owned:
            for owner in _decoder.decode(new.raw).metadata.owner_references:
                self._dependents.setdefault(owner.uid, set()).add(where)
            if old is None or not old.owned:
                self._add(where)
        if new is not None and new.deleting:
            self._add(where)
        if new is None and old is not None:
            for dependent in sorted(self._dependents.pop(old.uid, ())):
                self._add(dependent)
            self._removed(old)

    def _removed(self, old: Entry) -> None:
        """An object is gone: its namespace or owner may wait for that."""
        namespaces = self._registry.get("", "namespaces")
        if namespaces is not None and old.namespace:
            entry = namespaces.collection.get(("", old.namespace))
            if entry is not None and entry.deleting:
                self._add(("", "namespaces", entry.key))
        if old.owned:
            for owner in _decoder.decode(old.raw).metadata.owner_references:
                kind = self._registry.of_kind(owner.api_version, owner.kind)
                if kind is not None:
                    self._add(
                        (kind.group, kind.plural, (old.namespace if kind.namespaced else "", owner.name))
                    )
        for crd in self._deleting_definitions():
            self._add(("apiextensions.k8s.io", "customresourcedefinitions", crd.key))

    def _deleting_definitions(self) -> list[Entry]:
        definitions = self._registry.get("apiextensions.k8s.io", "customresourcedefinitions")
        return [] if definitions is None else [e for e in definitions.collection.entries() if e.deleting]

    def _add(self, where: Where) -> None:
        self._due[where] = None
        self._wake()

    def _process(self, where: Where) -> None:
        kind = self._registry.get(where[0], where[1])
        entry = kind.collection.get(where[2]) if kind else None
        if kind is None or entry is None:
            return
        if not entry.deleting:
            if entry.owned and self._is_abandoned(where, entry):
                self._delete(kind, entry, GARBAGE_COLLECTOR)
            return
        if kind.resource == "namespaces":
            self._end_namespace(kind, entry)
        elif kind.plural == "customresourcedefinitions":
            self._end_definition(kind, entry)
        else:
            self._end_owner(kind, entry)

    def _is_abandoned(self, where: Where, entry: Entry) -> bool:
        """Whether every owner is known to be gone (or there under another uid)."""
        for owner in _decoder.decode(entry.raw).metadata.owner_references:
            kind = self._registry.of_kind(owner.api_version, owner.kind)
            if kind is None:
                self._unclear[where] = None
                return False
            if not _can_be_asked_for(owner.name):
                return False
            found = kind.collection.get((entry.namespace if kind.namespaced else "", owner.name))
            if found is not None and found.uid == owner.uid:
                return False
        return True

    def _end_owner(self, kind: Kind, entry: Entry) -> None:
        finalizers = _decoder.decode(entry.raw).metadata.finalizers
        if ORPHAN in finalizers:
            for child_kind, child in self._children(entry):
                self._orphan(child_kind, child, entry.uid)
            self._drop_finalizer(kind, entry, ORPHAN, GARBAGE_COLLECTOR)
        elif FOREGROUND in finalizers:
            children = self._children(entry)
            for child_kind, child in children:
                if not child.deleting:
                    self._delete(child_kind, child, GARBAGE_COLLECTOR)
            if not self._children(entry):
                self._drop_finalizer(kind, entry, FOREGROUND, GARBAGE_COLLECTOR)

    def _children(self, owner: Entry) -> list[tuple[Kind, Entry]]:
        found = []
        for group, plural, key in sorted(self._dependents.get(owner.uid, ())):
            kind = self._registry.get(group, plural)
            entry = kind.collection.get(key) if kind else None
            if kind is not None and entry is not None:
                found.append((kind, entry))
        return found

    def _end_namespace(self, kind: Kind, entry: Entry) -> None:
        for other in self._registry:
            if not other.namespaced:
                continue
            contents = other.collection.at(other.collection.versions.current, namespace=entry.name)
            for content in list(islice((one for one in contents if not one.deleting), self.BATCH)):
                self._delete(other, content, NAMESPACE_CONTROLLER)
            version = other.collection.versions.current
            if next(other.collection.at(version, namespace=entry.name), None) is not None:
                return  # each removal lists the namespace again
        patch = b'{"spec":{"finalizers":null}}'
        self._patch(kind, entry, patch, NAMESPACE_CONTROLLER)

    def _end_definition(self, kind: Kind, entry: Entry) -> None:
        """Delete the objects, and end the kind once all that they owned was looked at: later no owner can be found.

        The real collector remembers the owners that it saw go.
        """
        spec = entry.decoded()["spec"]
        defined = self._registry.get(spec["group"], spec["names"]["plural"])
        contents = list(defined.collection.entries()) if defined else []
        for content in contents[: self.BATCH]:
            if defined is not None and not content.deleting:
                self._delete(defined, content, CRD_CONTROLLER)
        if any(plural != kind.plural for _, plural, _ in self._due):
            self._add((kind.group, kind.plural, entry.key))
        elif defined is None or not len(defined.collection):
            self._drop_finalizer(kind, entry, CRD_CLEANUP, CRD_CONTROLLER)
        elif any(not content.deleting for content in contents[self.BATCH :]):
            self._add((kind.group, kind.plural, entry.key))

    def _delete(self, kind: Kind, entry: Entry, user: str) -> None:
        options = DeleteOptions(preconditions=Preconditions(uid=entry.uid))
        with suppress(Refusal):
            self._writes.delete(_target(kind, entry), Request(user), options)

    def _drop_finalizer(self, kind: Kind, entry: Entry, finalizer: str, user: str) -> None:
        finalizers = _decoder.decode(entry.raw).metadata.finalizers
        if finalizer in finalizers:
            left = [name for name in finalizers if name != finalizer]
            self._patch(kind, entry, msgspec.json.encode({"metadata": {"finalizers": left}}), user)

    def _orphan(self, kind: Kind, entry: Entry, owner_uid: str) -> None:
        owners = _decoder.decode(entry.raw).metadata.owner_references
        left = [owner for owner in owners if owner.uid != owner_uid]
        self._patch(
            kind, entry, msgspec.json.encode({"metadata": {"ownerReferences": left}}), GARBAGE_COLLECTOR
        )

    def _patch(self, kind: Kind, entry: Entry, patch: bytes, user: str) -> None:
        request = Request(user, content_type="application/merge-patch+json")
        with suppress(Refusal):
            self._writes.patch(_target(kind, entry), request, patch)


def _target(kind: Kind, entry: Entry) -> Target:
    version = kind.versions.get(kind.storage_version) or next(iter(kind.versions.values()))
    return Target(kind, version, entry.namespace, entry.name, "")


def _can_be_asked_for(name: str) -> bool:
    """Whether a client can GET an object of *name*: Kubernetes' own cannot, and its collector then deletes nothing."""
    return "/" not in name and "%" not in name and name not in (".", "..")
