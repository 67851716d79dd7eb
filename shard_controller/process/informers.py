"""Informers of one controller: a list and watch per resource and namespace, into its caches and event handlers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

from kubeio.clock import Clock
from kubeio.rest.client import Client
from kubeio.versions import order
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.shard.ownership import Ownership


class Informers:
    """Informers of *caches*: the tree by the selector of *ownership*, other watches by their own.

    *namespaces*: none means all.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        ownership: Ownership,
        handlers: EventHandlers,
        *,
        namespaces: Sequence[str],
        silence_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.caches = caches
        self._ownership = ownership
        self._handlers = handlers
        self._silence_s = silence_s
        self._clock = clock
        self._sources: dict[ResourceCache, list[Reflector]] = {}
        self.running: list[Informer] = []

        def follow(kind: ResourceCache, namespaces: Sequence[str], selector: str) -> None:
            self._sources[kind] = []
            for namespace in (namespaces if kind.resource.namespaced else ()) or ("",):
                server = ListerWatcher(
                    client,
                    kind.resource,
                    namespace=namespace,
                    label_selector=selector,
                    metadata_only=kind.is_metadata_only,
                )
                source = Reflector(server, silence_s=silence_s, clock=clock, rng=rng)
                self._sources[kind].append(source)
                handler = self._handler(kind)
                self.running.append(
                    Informer(source, store=kind.store, namespace=namespace, on_change=handler)
                )

        for kind in caches:
            follow(kind, namespaces, ownership.selector)
        for watched in caches.watched.values():
            follow(watched, watched.watch.namespaces or namespaces, watched.watch.label_selector)

    def _handler(self, kind: ResourceCache) -> Callable[[Change], None]:
        if isinstance(kind, ReadOnlyCache):
            return partial(self._handlers.watched_changed, kind)
        return partial(self._handlers.changed, kind)

    @property
    def resources(self) -> list[str]:
        return [kind.name for kind in self._sources]

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.running)

    @property
    def is_fresh(self) -> bool:
        """Whether every watch had an event or bookmark lately."""
        now = self._clock.now()
        return all(now - informer.sign_of_life_at <= self._silence_s for informer in self.running)

    async def wait_synced(self) -> None:
        """Return once every cache has its first list, and the handlers have enqueued it."""
        for informer in self.running:
            await informer.synced.wait()
        self._handlers.caches_full()

    def sweep(self) -> None:
        """Forget what every watch has passed by now."""
        for kind in self.caches:
            streamed = min(order(source.resource_version) for source in self._sources[kind])
            self._ownership.forget(kind, streamed)
            self._handlers.passed(kind, streamed)

    async def run(self) -> None:
        """Follow every watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.running:
                name = f"informer {informer.source.resource.group_resource}"
                group.create_task(informer.run(), name=name)
