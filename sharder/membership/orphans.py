"""Finds dead names that no object carries any more: consistent lists, many names at a time, at a limited rate.

Each list scans its whole resource on the server. So one list asks for many names, and the next one waits. The lists use
the connections for objects: evidence about Leases never queues behind them.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.errors import ApiError, KubeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.clock import Clock
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from sharder.membership.membership import Membership
    from sharder.ringspec.scope import Scope

log = structlog.get_logger("sharder")

BATCH: Final = 50
"""Names in one list: a selector of at most 3 KB."""
PAGE: Final = 500
"""Objects that are read of one list: dead names have none, or a take-over goes on and everything is asked later."""
APART_S: Final = 1.0
"""Pause from one batch to the next."""


class OrphanChecks:
    """Searches objects of the names it is given, and reports them to *membership*; until cancelled."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        resources: Sequence[ApiResource],
        *,
        label: str,
        scope: Scope,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.resources = resources
        self._client = client
        self._membership = membership
        self._label = label
        self._scope = scope
        self._clock = clock
        self._backoff = ExponentialBackoff(base_s=APART_S, max_s=30.0, healthy_s=60.0, rng=rng)
        self._wanted: dict[str, None] = {}
        self._added = asyncio.Event()

    def want(self, name: str) -> None:
        """Check *name*; once, however often it is wanted meanwhile."""
        self._wanted[name] = None
        self._added.set()

    async def run(self) -> None:
        while True:
            await self._added.wait()
            batch = list(self._wanted)[:BATCH]
            try:
                await self._check(batch)
            except KubeError as error:
                log.warning("could not check for objects of dead shards", names=len(batch), error=str(error))
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                pause_s = self._backoff.failed(self._clock.now(), at_least_s=asked_s or 0.0)
            else:
                self._backoff.reset()
                pause_s = APART_S
                for name in batch:
                    del self._wanted[name]
            if not self._wanted:
                self._added.clear()
            await asyncio.sleep(pause_s)

    async def _check(self, names: Sequence[str]) -> None:
        begun_at = self._clock.now()
        carried: set[str] = set()
        is_complete = True
        for resource in self.resources:
            found, is_whole = await self._carried(resource, names)
            carried |= found
            is_complete &= is_whole
        for name in names:
            if is_complete and name not in carried:
                self._membership.orphan_confirmed(name, begun_at=begun_at)
            else:
                self._membership.orphan_refuted(name, at=self._clock.now())

    async def _carried(self, resource: ApiResource, names: Sequence[str]) -> tuple[set[str], bool]:
        """Subset of *names* that objects of *resource* carry, and whether every object was examined."""
        carried: set[str] = set()
        selector = f"{self._label} in ({','.join(sorted(names))})"
        pages = self._scope.pages(self._client, resource, label_selector=selector, limit=PAGE)
        async with aclosing(pages):
            async for page in pages:
                carried.update(item.meta.labels.get(self._label, "") for item in page.objects)
                if page.continue_:
                    return carried, False
        return carried, True
