"""Changes of ControllerRings, from a watch of their metadata. Keeps no ring: a look reads them."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kubeio.protocol import CONTROLLER_RINGS
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, ListDone, Reflector, Removed

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.rest.client import Client


class RingChanges:
    """Watches the ring called *name*, or all of them; `async with` ends the watch.

    A watch that breaks off begins again by itself; one that the server refuses does not.
    """

    def __init__(self, client: Client, name: str | None, *, clock: Clock) -> None:
        selector = f"metadata.name={name}" if name is not None else ""
        source = ListerWatcher(client, CONTROLLER_RINGS, field_selector=selector, metadata_only=True)
        self._reflector = Reflector(source, clock=clock, rng=random.Random())  # noqa: S311
        self._is_listed = False
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run(), name="watch rings")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    @property
    def is_watching(self) -> bool:
        """Whether the watch shows every change: it has begun, and has not failed since its last event."""
        return self._is_listed and not self._reflector.failures and not self._running.done()

    def clear(self) -> None:
        """Forget the changes up to now: the rings are read next."""
        self._changed.clear()

    async def wait(self, *, at_most_s: float) -> None:
        """Return when a ring changes after `clear`, or after *at_most_s*; at once if there is no watch."""
        if self.is_watching:
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._changed.wait()

    async def _run(self) -> None:
        async with aclosing(self._reflector.events()) as events:
            async for event in events:
                if isinstance(event, ListDone):
                    self._is_listed = True
                if isinstance(event, ListDone | Changed | Removed):
                    self._changed.set()
