"""Namespaces of a ring: one metadata-only watch, and only if the ring selects any.

Without cluster permissions the command line names them, and nothing is watched.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from kubeio.resource import NAMESPACES
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.watch import Changed, ListDone, Listed, ListStarted, ListWatch, Removed
from sharder.ringspec.scope import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kubeio.clock import Clock
    from kubeio.models import Object
    from kubeio.rest.client import Client
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec


class Namespaces:
    """Answers whether a namespace is selected; tells *on_change* when an answer changed."""

    def __init__(
        self,
        client: Client,
        spec: RingSpec,
        *,
        scope: Scope = EVERYWHERE,
        on_change: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._spec = spec
        self._scope = scope
        self._on_change = on_change
        self._clock = clock
        self._rng = rng
        self._selected: set[str] = set()
        self._listed: set[str] = set()
        self.synced = asyncio.Event()
        self.on_deselected: Callable[[Collection[str]], None] | None = None
        """Called with namespaces that were selected, before *on_change*."""
        if spec.namespace_selector is None:
            self.synced.set()

    def selects(self, namespace: str) -> bool:
        """Whether objects of *namespace* belong to the ring; cluster-scoped ones (empty) always do."""
        if self._scope.names:
            return self._scope.wants(namespace)
        return self._spec.namespace_selector is None or not namespace or namespace in self._selected

    async def run(self) -> None:
        """Follow the namespaces until cancelled; returns at once if the ring selects none."""
        if self._spec.namespace_selector is None:
            return
        watch = ListWatch(
            ListerWatcher(self._client, NAMESPACES, metadata_only=True),
            clock=self._clock,
            rng=self._rng,
        )
        async for event in watch.events():
            match event:
                case ListStarted():
                    self._listed = set()
                case Listed(objects=objects):
                    self._listed.update(item.meta.name for item in objects)
                    self._judge(objects)
                case ListDone():
                    self._replace(self._selected & self._listed)
                    self.synced.set()
                case Changed(object=item):
                    self._judge([item])
                case Removed(object=item):
                    self._replace(self._selected - {item.meta.name})
                case _:
                    pass

    def _judge(self, objects: list[Object]) -> None:
        selected = set(self._selected)
        for item in objects:
            if self._spec.selects_namespace(item.meta.labels):
                selected.add(item.meta.name)
            else:
                selected.discard(item.meta.name)
        self._replace(selected)

    def _replace(self, selected: set[str]) -> None:
        if selected != self._selected:
            left, self._selected = self._selected - selected, selected
            if left and self.on_deselected is not None:
                self.on_deselected(left)
            self._on_change()
