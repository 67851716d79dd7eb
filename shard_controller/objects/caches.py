"""The caches of a replica: per resource the store of its selected watch, and the own writes of a moment ago.

Owns how each resource is kept (`ResourceCache`), which resources form a tree, how the root of a controlled object is
found, and what is watched beside the ring (`ReadOnlyCache`). Writes nothing to the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import structlog

from kubeio.errors import InputError
from kubeio.models import Meta, Object, ObjectKey, OwnerReference
from kubeio.resource import ApiResource
from kubeio.versions import is_older, order
from kubeio.watches.storage import RAW
from kubeio.watches.store import Change, Store
from shard_controller.declare.predicates import Snapshot
from shard_controller.declare.request import Request
from shard_controller.declare.resource import Resource as Declared
from shard_controller.declare.resource import form_of, index_functions_of
from shard_controller.declare.watches import Watch
from shard_controller.objects.passed import Passed

T = TypeVar("T")
log = structlog.get_logger("shard_controller")
MAX_UNFIT = 1000
"""Unfit objects whose version is remembered; beyond that they are logged again."""


def is_controlled(meta: Meta, *, by: Meta, of: ApiResource) -> bool:
    """Whether *by*, of the resource *of*, controls the object *meta*: uid, kind and namespace must fit.

    Any account may write a foreign uid into an owner reference.
    """
    ref = meta.controller
    return (
        ref is not None
        and ref.uid == by.uid
        and ref.group_kind == (of.group, of.kind)
        and by.namespace in ("", meta.namespace)
    )


def version_of(meta: Meta) -> int:
    return order(meta.resource_version)


class _RememberingStore(Store):
    """A store that still has the version which the change at hand replaced."""

    former: Object | None = None

    def learn(self, obj: Object) -> Change | None:
        self.former = self.get(obj.meta.key)
        return super().learn(obj)

    def remove(self, key: ObjectKey, *, as_of: str = "") -> Object | None:
        self.former = super().remove(key, as_of=as_of)
        return self.former


class ResourceCache:
    """One resource: its store, and own writes that the watch has yet to show.

    *declared*: how the controller wants it kept. A resource that no controller declares is only handed over: its
    metadata suffices. *remembers*: handlers of a change can also read the version before it (`former`). *keeps*:
    annotations that stay whatever a transform drops.
    """

    def __init__(
        self,
        resource: ApiResource,
        *,
        declared: Declared[Any] | None = None,
        remembers: bool = False,
        keeps: frozenset[str] = frozenset(),
    ) -> None:
        self.resource = resource
        self.is_metadata_only = declared is None or declared.is_metadata_only
        """Whether the server is to be asked for metadata alone."""
        store = _RememberingStore if remembers else Store
        self.store = store(
            form_of(declared, keeps=keeps) if declared is not None else RAW,
            indexes=index_functions_of(declared) if declared is not None else None,
            on_fault=self._log_fault,
        )
        self._indexes = tuple(declared.indexes) if declared is not None else ()
        self._written: dict[ObjectKey, Object] = {}
        self._passed = Passed()

    @property
    def name(self) -> str:
        return self.resource.group_resource

    def get(self, key: ObjectKey) -> Object | None:
        """The newest version known: from the watch, or the answer to a write of our own."""
        cached = self.store.get(key)
        written = self._written.get(key)
        if written is None:
            return cached
        if cached is None or version_of(cached.meta) < version_of(written.meta):
            return written
        del self._written[key]
        return cached

    def meta(self, key: ObjectKey) -> Meta | None:
        """Metadata of `get`, without touching the object's bytes."""
        if key in self._written:
            found = self.get(key)
            return found.meta if found else None
        return self.store.meta(key)

    def former(self, change: Change, resource: Declared[T]) -> Snapshot[T] | None:
        """The version before *change*, from within its handler; None if there was none, or it is not remembered."""
        known = self.store.former if isinstance(self.store, _RememberingStore) else None
        if change.old is None or known is None or known.meta.key != change.key:
            return None
        return Snapshot(change.old, known.raw, resource)

    def present(self, change: Change, resource: Declared[T]) -> Snapshot[T] | None:
        """The version after *change*, from within its handler; None if the object left."""
        found = self.store.get(change.key) if change.new is not None else None
        return Snapshot(found.meta, found.raw, resource) if found is not None else None

    def wrote(self, answer: Object, *, is_new: bool = False) -> None:
        """Remember *answer* until the watch shows it, so that we read what we wrote.

        The answer to a change of an object that has left the cache meanwhile came too late: it is not kept.
        """
        key = answer.meta.key
        if is_new or key in self._written or key in self.store:
            self._written[key] = answer

    def shown(self, change: Change) -> None:
        """The watch showed *change*: an own write up to that version is settled."""
        written = self._written.get(change.key)
        if written is None:
            return
        version = change.new.resource_version if change.new is not None else change.left_at
        if not is_older(version, written.meta.resource_version):
            del self._written[change.key]

    def removed(self, key: ObjectKey) -> None:
        """The object is known to be gone, or passed on."""
        self._written.pop(key, None)

    def children(self, owner: Meta, *, of: ApiResource) -> list[Meta]:
        """Metadata of the objects that *owner*, an object of the resource *of*, controls."""
        keys = set(self.store.children(owner.uid))
        for key, answer in self._written.items():
            if is_controlled(answer.meta, by=owner, of=of):
                keys.add(key)
        known = (self.meta(key) for key in sorted(keys))
        return [meta for meta in known if meta is not None and is_controlled(meta, by=owner, of=of)]

    def by_index(self, name: str, value: str) -> list[ObjectKey]:
        """Keys of the objects for which the index *name* gives *value*, in order, own writes included.

        Raises: InputError if there is no such index.
        """
        if name not in self._indexes:
            raise InputError(
                "indexes",
                name,
                f"is no index of {self.name}",
                f"declare it: sc.Resource(..., indexes={{{name!r}: function}})",
            )
        keys = self.store.by_index(name, value)
        for key, answer in list(self._written.items()):
            if self.get(key) is answer:
                if value in self.store.values(name, key, answer.raw):
                    keys.add(key)
                else:
                    keys.discard(key)
        return sorted(keys)

    def forget(self, streamed: int) -> list[Meta]:
        """Forget own writes that the watch, by now at *streamed*, has passed; gives the objects that are gone.

        A watch that lags forgets nothing: who read an own write reads nothing older afterwards. The watch showed the
        end of what is gone before the answer to the write came, or never, because it listed anew.
        """
        versions = {key: version_of(answer.meta) for key, answer in self._written.items()}
        passed = [(key, self._written.pop(key).meta) for key in self._passed.keys(versions, streamed)]
        return [meta for key, meta in passed if key not in self.store]

    def _log_fault(self, key: ObjectKey, what: str, error: Exception) -> None:
        """A function of the user failed for one object; other objects are not affected."""
        is_fit = not isinstance(error, msgspec.ValidationError)
        log.error(
            "transform or index function failed",
            resource=self.name,
            object=str(key),
            function=what,
            error=f"{type(error).__name__}: {error}" if is_fit else str(error),
        )


class ReadOnlyCache(ResourceCache):
    """A resource outside the ring: seen whole or as its watch selects, never written, drained or labelled."""

    def __init__(self, watch: Watch[Any], resource: ApiResource) -> None:
        super().__init__(resource, declared=watch.resource, remembers=True)
        self.watch = watch
        self._unfit: dict[ObjectKey, str] = {}  # logged: key to resourceVersion

    def decode(self, resource: Declared[T], found: Object) -> T | None:
        """The model of *found*; None if it does not fit, which is logged once per version."""
        try:
            return resource.decode(found.raw)
        except msgspec.ValidationError as error:
            meta = found.meta
            if self._unfit.get(meta.key) != meta.resource_version:
                if len(self._unfit) >= MAX_UNFIT:
                    self._unfit.clear()
                self._unfit[meta.key] = meta.resource_version
                log.error(
                    "object does not fit the model",
                    resource=self.name,
                    object=str(meta.key),
                    error=str(error),
                    version=meta.resource_version,
                    remedy="correct the object; until then ctx.list leaves it out",
                )
            return None


class Caches:
    """All resources of one controller; the first is the one that it reconciles.

    Iterating gives those of the tree, which a ring moves: *primary* and *controlled*, without what is only *watched*.
    *owned*: those of *controlled* that the controller declares, by the text of their `Resource`.
    """

    def __init__(
        self,
        primary: ResourceCache,
        controlled: list[ResourceCache],
        watched: Sequence[ReadOnlyCache] = (),
        owned: Mapping[str, ResourceCache] = MappingProxyType({}),
    ) -> None:
        self.primary = primary
        self.controlled = controlled
        self.owned = owned
        self.watched = {kind.watch.resource.text: kind for kind in watched}
        self._by_name = {kind.name: kind for kind in (primary, *controlled)}
        self._by_type = {(kind.resource.group, kind.resource.kind): kind for kind in (primary, *controlled)}

    def kind(self, name: str) -> ResourceCache:
        return self._by_name[name]

    def __iter__(self) -> Iterator[ResourceCache]:
        return iter(self._by_name.values())

    def tree(self, kind: ResourceCache, root: Meta) -> list[tuple[ResourceCache, Meta]]:
        """Everything below *root*, of *kind*, that is in the cache, children before their parents, any depth."""
        found: list[tuple[ResourceCache, Meta]] = []
        level = [(kind, root)]
        seen = {root.uid}
        while level:
            below = [
                (kind, meta)
                for parent, owner in level
                for kind in self.controlled
                for meta in kind.children(owner, of=parent.resource)
            ]
            level = [(kind, meta) for kind, meta in below if meta.uid not in seen]
            found += level
            seen.update(meta.uid for _, meta in level)
        return found[::-1]

    def root(self, kind: ResourceCache, meta: Meta) -> Request:
        """Key that must be busy while this object is written: its controller's controller's ... as far as known."""
        request = Request(kind.name, meta.key)
        if kind is self.primary:
            return request
        for _ in range(10):  # owner references may form a cycle, which is no tree
            found = self._controller(meta.controller, meta.namespace) if meta.controller else None
            if found is None:
                return request
            kind, request = found
            if kind is self.primary:
                return request
            above = kind.meta(request.key)
            if above is None:
                return request
            meta = above
        return request

    def _controller(self, ref: OwnerReference, namespace: str) -> tuple[ResourceCache, Request] | None:
        kind = self._by_type.get(ref.group_kind)
        if kind is None:
            return None
        key = ObjectKey(namespace if kind.resource.namespaced else "", ref.name)
        return kind, Request(kind.name, key)
