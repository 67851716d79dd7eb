"""Controller runtime: informers, queue and workers of one controller, from the first list to the last answer.

The same in every mode: `Ownership` has what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Never

import structlog

from kubeio.shard.progress import TICK_S, StallDetector
from shard_controller.process.informers import Informers
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.reconcile.worker import Worker
from shard_controller.shard.ownership import Ownership
from shard_controller.shard.writer import FencedWriter

log = structlog.get_logger("shard_controller")

_SWEEP_TICKS = 10


class ControllerRuntime:
    """Runs *worker* over *informers*; *beside*: what runs, by name, from when the caches are full to the end."""

    def __init__(
        self,
        informers: Informers,
        ownership: Ownership,
        queue: ReconcileQueue,
        worker: Worker[Any],
        *,
        writer: FencedWriter,
        beside: Mapping[str, Callable[[], Coroutine[Any, Any, Never]]],
        progress: StallDetector,
        end_process: Callable[[int], None],
    ) -> None:
        self._informers = informers
        self._ownership = ownership
        self._queue = queue
        self._worker = worker
        self.runner = worker.runner
        self._writer = writer
        self._beside = beside
        self._progress = progress
        self._end_process = end_process

    @property
    def is_synced(self) -> bool:
        """Whether every cache is full."""
        return self._informers.is_synced

    def why_not_ready(self) -> str | None:
        if not self._informers.is_synced:
            return "caches are not filled yet"
        return None if self._ownership.is_held() else "the lease is not held"

    def has_all_answers(self) -> bool:
        """Whether every request that was sent is answered, or too old to be carried out."""
        return self._writer.unanswered.settled_in_s() == 0

    async def run(
        self,
        stopping: asyncio.Event,
        *,
        on_synced: Callable[[], None],
        timeout_s: float,
        stop_within_s: float,
    ) -> bool:
        """Work until *stopping*, then end what runs. True if every request sent is answered or too old to matter."""
        async with asyncio.TaskGroup() as outlasting:
            # a reconcile may create as long as it runs, cancelled or not
            async with self._writer, asyncio.TaskGroup() as group:
                # it outlasts the others: what cannot be stopped must not hold up the end of the process
                ticker = outlasting.create_task(self._tick(), name="ticker")
                helpers = [group.create_task(self._informers.run(), name="informers")]
                stop = asyncio.create_task(stopping.wait(), name="stop")  # ended below, whatever happens
                try:
                    if await self._synced_before(stop):
                        on_synced()
                    working = group.create_task(self._worker.run(), name="workers")
                    helpers += [group.create_task(call(), name=name) for name, call in self._beside.items()]
                    if not stopping.is_set():
                        objects = len(self._informers.caches.primary.store)
                        log.info("working", resources=self._informers.resources, objects=objects)
                    await stop
                    await self._end(working, timeout_s)
                finally:
                    stop.cancel()
                    self._queue.close(drain=False)  # user code may have kept the cancellation from a worker
                settled = await self._settle(stop_within_s)
                for helper in helpers:
                    helper.cancel()
            ticker.cancel()
        return settled

    async def _synced_before(self, stop: asyncio.Task[bool]) -> bool:
        """Wait for every first list, or for *stop*; whether the lists are there."""
        async with asyncio.TaskGroup() as group:
            synced = group.create_task(self._informers.wait_synced(), name="first lists")
            await asyncio.wait({synced, stop}, return_when=asyncio.FIRST_COMPLETED)
            return not synced.cancel()

    async def _end(self, working: asyncio.Task[None], timeout_s: float) -> None:
        """Start nothing more; give what runs *timeout_s*, then interrupt it, then cancel it."""
        log.info("stopping", running=len(self._queue.processing))
        self._queue.close(drain=False)
        for patience_s, insist in (
            (timeout_s, lambda: self.runner.interrupt("stop")),
            (1.0, working.cancel),
        ):
            if self._ownership.is_held():
                await asyncio.wait({working}, timeout=patience_s)
            if not working.done():
                insist()
        await asyncio.wait({working})

    async def _settle(self, within_s: float) -> bool:
        """Wait, within reason, until no request of ours can still be carried out."""
        wait_s = self._writer.unanswered.settled_in_s()
        if wait_s is None or wait_s > within_s:
            return False
        await asyncio.sleep(wait_s)
        return True

    async def _tick(self) -> Never:
        """Record progress for the heartbeat every second; sweep the caches now and then."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            self._progress.tick(
                due=len(self._queue),
                taken=self._worker.taken,
                is_fresh=self._informers.is_fresh,
                is_held=self._ownership.is_held(),
            )
            self.runner.check_overruns(end_process=self._end_process)
            ticks += 1
            if ticks % _SWEEP_TICKS == 0:
                self._informers.sweep()
