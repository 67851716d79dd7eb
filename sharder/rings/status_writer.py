"""Writes a ring's status: at most once a second, and only when it says something new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import KubeError, NotFound
from sharder.rings.status import Condition, with_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubeio.clock import Clock
    from sharder.rings.store import RingStore

log = structlog.get_logger("sharder")

INTERVAL_S: Final = 1.0


class StatusWriter:
    """The one writer of the status of *ring*. *before* is the status as it was found."""

    def __init__(self, store: RingStore, ring: str, before: Mapping[str, object], *, clock: Clock) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._written: Mapping[str, object] = before
        found = before.get("conditions")
        self._conditions: Sequence[Mapping[str, object]] = found if isinstance(found, list) else []

    def dated(self, conditions: Sequence[Condition], *, generation: int) -> list[dict[str, object]]:
        """*conditions* with their transition times, as the next status will carry them."""
        now = self._clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        return with_times(conditions, self._conditions, now=now, generation=generation)

    async def write(self, status: Mapping[str, object]) -> None:
        """Write *status* if it differs from the last one; a failed write is tried again with the next one."""
        if status == self._written:
            return
        try:
            await self._store.merge_status(status)
        except NotFound:
            return
        except KubeError as error:
            log.warning("status could not be written", ring=self._ring, error=str(error))
            return
        self._written = status
        conditions = status.get("conditions")
        self._conditions = conditions if isinstance(conditions, list) else []

    async def run(self, status: Callable[[], Mapping[str, object]]) -> None:
        """Keep the status true until cancelled."""
        while True:
            await self.write(status())
            await asyncio.sleep(INTERVAL_S)
