"""Informers of one run of the controller: every object that carries the shard's name goes into its trees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Final

from kubeio.clock import Clock
from kubeio.protocol import RingKeys
from kubeio.rest.answers import Page
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from kubeio.watches.versions import newest
from proxy.kinds import TreeKind
from proxy.trees import Trees, node_of

_SILENCE_S: Final = 90.0
"""Bookmarks come once a minute."""
_NEAR: Final = 20
"""So many namespaces are read one by one."""


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
        self._trees: Final = trees
        self._changed: Final = changed
        self._read: Final[dict[str, str]] = {}
        """Versions of the last reads of `elsewhere`, by kind."""
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
            Informer(self._sources[kind.name], on_change=partial(self._on_change, kind)) for kind in kinds
        ]

    def newest(self, name: str) -> str:
        """The newest resourceVersion that was seen of the kind *name*; empty before its first list."""
        return newest(self._read.get(name, ""), self._sources[name].resource_version)

    async def elsewhere(
        self, controllers: Collection[str], *, namespaces: Collection[str]
    ) -> dict[str, set[str]]:
        """Uids of what *controllers* control and what bears another name or none, by the uid of its controller.

        Consistent reads of the metadata of kinds that can be controlled: in *namespaces*, those of the controllers, if
        these are few. Raises: KubeError.
        """
        found: dict[str, set[str]] = {}
        for kind in self._kinds:
            if not kind.above:
                continue
            is_near = kind.resource.namespaced and "" not in namespaces and len(namespaces) <= _NEAR
            for namespace in sorted(namespaces) if is_near else [""]:
                async for page in self._not_ours(kind, namespace):
                    for each in page.objects:
                        owner = each.meta.controller
                        if owner is not None and owner.uid in controllers:
                            found.setdefault(owner.uid, set()).add(each.meta.uid)
                    self._read[kind.name] = page.resource_version
        return found

    def _not_ours(self, kind: TreeKind, namespace: str) -> AsyncIterator[Page]:
        """Pages of objects of *kind* in *namespace* that do not bear the shard's name."""
        selector = f"{self._keys.shard}!={self._shard}"
        return self._client.pages(
            kind.resource, namespace=namespace, label_selector=selector, metadata_only=True
        )

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

    def _on_change(self, kind: TreeKind, change: Change) -> None:
        if change.new is not None:
            is_root = kind.is_root(change.new.controller)
            node = node_of(change.new, kind.name, keys=self._keys, is_root=is_root, is_leaf=kind.is_leaf)
            self._trees.put(node)
        elif change.old is not None:
            self._trees.drop(change.old.uid)
        self._changed()
