"""Informers of one run of the controller: every object that carries the shard's name goes into its trees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kubeio.clock import Clock
from kubeio.models import GroupResource
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from proxy.trees import Trees, node_of


@dataclass(frozen=True, slots=True)
class TreeKind:
    """A resource of the ring. *is_main*: its objects are roots. *is_leaf*: they control nothing."""

    resource: ApiResource
    is_main: bool = False
    is_leaf: bool = False

    @property
    def name(self) -> str:
        """`websites.example.com`."""
        return str(GroupResource(self.resource.group, self.resource.plural))


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
        self._keys: Final = keys
        self._trees: Final = trees
        self._changed: Final = changed
        self._informers: Final = [
            Informer(
                Reflector(
                    ListerWatcher(
                        client, kind.resource, label_selector=f"{keys.shard}={shard}", metadata_only=True
                    ),
                    clock=clock,
                    rng=rng,
                ),
                on_change=partial(self._on_change, kind),
            )
            for kind in kinds
        ]

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
            node = node_of(change.new, kind.name, keys=self._keys, is_main=kind.is_main, is_leaf=kind.is_leaf)
            self._trees.put(node)
        elif change.old is not None:
            self._trees.drop(change.old.uid)
        self._changed()
