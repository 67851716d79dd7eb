"""Namespaces of a ring: one metadata-only watch, and only if the ring selects any."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from kubeio.resource import NAMESPACES
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, ListDone, Listed, ListStarted, Reflector, Removed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.clock import Clock
    from kubeio.models import Object
    from kubeio.rest.client import Client
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec


class Namespaces:
    """Follows the namespaces that the ring selects; *on_change* gets them whenever they changed."""

    def __init__(
        self,
        client: Client,
        spec: RingSpec,
        *,
        scope: Scope,
        on_change: Callable[[frozenset[str]], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._spec = spec
        self._on_change = on_change
        self._clock = clock
        self._rng = rng
        self._selected: frozenset[str] = frozenset()
        self._listed: set[str] = set()
        self.synced = asyncio.Event()
        self._is_watched = spec.namespace_selector is not None and not scope.names
        if not self._is_watched:
            self.synced.set()

    async def run(self) -> None:
        """Follow the namespaces until cancelled; returns at once if the ring selects none."""
        if not self._is_watched:
            return
        watch = Reflector(
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
        self._replace(frozenset(selected))

    def _replace(self, selected: frozenset[str]) -> None:
        if selected != self._selected:
            self._selected = selected
            self._on_change(selected)


def selected_at_first(spec: RingSpec, scope: Scope) -> frozenset[str] | None:
    """Selected namespaces before any was seen; None: all. Without cluster permissions the command line names them."""
    if scope.names:
        return frozenset(scope.names)
    return None if spec.namespace_selector is None else frozenset()
