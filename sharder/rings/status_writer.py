"""Writes a ring's status: at most once a second, and only when it says something new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import KubeError, NotFound
from kubeio.versions import is_older
from sharder.rings.status import Condition, with_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubeio.clock import Clock
    from sharder.rings.store import Ring, RingStore

log = structlog.get_logger("sharder")

INTERVAL_S: Final = 1.0


class StatusWriter:
    """The one writer of the status of a ring; *seen* gives the ring as it was seen last.

    A sharder that led before and stood still may write once more: what it wrote is overwritten.
    """

    def __init__(self, store: RingStore, seen: Callable[[], Ring], *, clock: Clock) -> None:
        self._store = store
        self._seen = seen
        self._clock = clock
        self._written: Mapping[str, object] = seen().status
        self._answer: Ring | None = None
        found = self._written.get("conditions")
        self._conditions: Sequence[Mapping[str, object]] = found if isinstance(found, list) else []

    def dated(self, conditions: Sequence[Condition], *, generation: int) -> list[dict[str, object]]:
        """*conditions* with their transition times, as the next status will carry them."""
        now = self._clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        return with_times(conditions, self._conditions, now=now, generation=generation)

    async def write(self, status: Mapping[str, object]) -> None:
        """Write *status* unless it stands as it was written; a failed write is tried again with the next one."""
        if status == self._written and not self._is_overwritten():
            return
        try:
            self._answer = await self._store.merge_status(status)
        except NotFound:
            return
        except KubeError as error:
            log.warning("status could not be written", ring=self._seen().name, error=str(error))
            return
        self._written = status
        conditions = status.get("conditions")
        self._conditions = conditions if isinstance(conditions, list) else []

    def _is_overwritten(self) -> bool:
        """Whether the ring was seen with another status since the last write, by the same implementation."""
        if self._answer is None:
            return False
        seen, written = self._seen(), self._answer
        is_newer = is_older(written.metadata.resource_version, seen.metadata.resource_version)
        return is_newer and seen.sharder == written.sharder and seen.status != written.status

    async def run(self, status: Callable[[], Mapping[str, object]]) -> None:
        """Keep the status true until cancelled."""
        while True:
            await self.write(status())
            await asyncio.sleep(INTERVAL_S)
