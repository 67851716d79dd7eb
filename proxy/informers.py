"""Informers of one run of the controller: every object that carries the shard's name goes into its trees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import Final

from kubeio.clock import Clock
from kubeio.models import Meta, Object, ObjectKey
from kubeio.protocol import RingKeys
from kubeio.rest.answers import Page
from kubeio.rest.client import Client
from kubeio.versions import is_older, newest
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from proxy.kinds import TreeKind
from proxy.trees import Node, Trees, node_of

_SILENCE_S: Final = 90.0
"""Bookmarks come once a minute."""
_NEAR: Final = 20
"""So many namespaces are read one by one."""


class TreeStore:
    """Objects of one *kind* in *trees*, for an informer: nothing is kept of them but their nodes."""

    def __init__(self, trees: Trees, kind: TreeKind, *, keys: RingKeys) -> None:
        self._trees: Final = trees
        self._kind: Final = kind
        self._keys: Final = keys

    def __iter__(self) -> Iterator[ObjectKey]:
        return self._trees.keys(self._kind.name)

    def learn(self, obj: Object) -> Change | None:
        """Take the metadata of *obj* in; None if that version, or a newer one, is known."""
        kind, meta = self._kind, obj.meta
        known, version = self._trees.find(kind.name, meta.key), meta.resource_version
        if known is not None and (
            known.resource_version == version or is_older(version, known.resource_version)
        ):
            return None
        is_root = kind.is_root(meta.controller)
        self._trees.put(node_of(meta, kind.name, keys=self._keys, is_root=is_root, is_leaf=kind.is_leaf))
        return Change(meta.key, None if known is None else _meta_of(known), meta)

    def remove(self, key: ObjectKey, *, as_of: str = "") -> Object | None:
        """Drop *key*, with what was known of its metadata. A version newer than *as_of* stays."""
        known = self._trees.find(self._kind.name, key)
        if known is None or (as_of and is_older(as_of, known.resource_version)):
            return None
        self._trees.drop(known.uid)
        return Object(_meta_of(known), b"")


def _meta_of(node: Node) -> Meta:
    return Meta(node.key.name, node.key.namespace, uid=node.uid, resource_version=node.resource_version)


class TreeInformers:
    """Follows *kinds* into *trees*, on metadata alone; the first lists are consistent reads.

    *changed* is called after each change.
    """

    def __init__(
        self,
        client: Client,
        kinds: Sequence[TreeKind],
        trees: Trees,
        *,
        keys: RingKeys,
        shard: str,
        changed: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client: Final = client
        self._kinds: Final = kinds
        self._keys: Final = keys
        self._shard: Final = shard
        self._read: Final[dict[str, str]] = {}
        """Versions of the last reads of `hidden`, by kind."""
        selector = f"{keys.shard}={shard}"
        self._sources: Final = {
            kind.name: Reflector(
                ListerWatcher(client, kind.resource, label_selector=selector, metadata_only=True),
                clock=clock,
                rng=rng,
            )
            for kind in kinds
        }
        self._informers: Final = [
            Informer(
                self._sources[kind.name],
                store=TreeStore(trees, kind, keys=keys),
                on_change=lambda change: changed(),
            )
            for kind in kinds
        ]

    def newest(self, name: str) -> str:
        """The newest resourceVersion that was seen of the kind *name*; empty before its first list."""
        return newest(self._read.get(name, ""), self._sources[name].resource_version)

    async def hidden(
        self, uids: Collection[str], *, namespaces: Collection[str], kinds: Collection[tuple[str, str]]
    ) -> dict[str, set[str]]:
        """Which of *uids*, and of what these control, exists and the controller does not see, by the uid of *uids*.

        Consistent reads of the metadata of what can be controlled, and of *kinds* (group, kind): in *namespaces*, those
        of *uids*, if these are few. Raises: KubeError.
        """
        found: dict[str, set[str]] = {}
        for kind in self._kinds:
            if not kind.above and (kind.resource.group, kind.resource.kind) not in kinds:
                continue
            is_near = kind.resource.namespaced and "" not in namespaces and len(namespaces) <= _NEAR
            for namespace in sorted(namespaces) if is_near else [""]:
                async for page in self._hidden_pages(kind, namespace):
                    for each in page.objects:
                        uid, owner = each.meta.uid, each.meta.controller
                        if uid in uids:
                            found.setdefault(uid, set()).add(uid)
                        if owner is not None and owner.uid in uids:
                            found.setdefault(owner.uid, set()).add(uid)
                    self._read[kind.name] = page.resource_version
        return found

    async def _hidden_pages(self, kind: TreeKind, namespace: str) -> AsyncIterator[Page]:
        """Pages of objects of *kind* in *namespace* that the controller does not see.

        Other shards' come first: what arrives amid the reads is in one of them.
        """
        keys, shard = self._keys, self._shard
        selectors = [f"{keys.shard}!={shard}"]
        selectors += [] if kind.is_leaf else [f"{keys.shard}={shard},{keys.visible}!={shard}"]
        for selector in selectors:
            async for page in self._client.pages(
                kind.resource, namespace=namespace, label_selector=selector, metadata_only=True
            ):
                yield page

    def is_fresh(self, now: float) -> bool:
        """Whether every watch had an event or a bookmark lately."""
        return all(now - source.sign_of_life_at <= _SILENCE_S for source in self._sources.values())

    @property
    def is_synced(self) -> bool:
        """Whether every first list is complete."""
        return all(informer.synced.is_set() for informer in self._informers)

    async def wait_synced(self) -> None:
        """Return when every first list is complete."""
        for informer in self._informers:
            await informer.synced.wait()

    async def run(self) -> None:
        """Follow every watch until cancelled. Raises what a first list raises."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"informer {informer.source.resource.group_resource}")
