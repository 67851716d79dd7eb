"""Takes keys from the queue, asks whether they are ours, and reconciles or hands over.

Owns the consumers of the queue and what they decide. One `Worker` per controller, with as many consumers as the
controller has workers. How a reconcile runs is `attempts`'. Knows nothing of processes and Leases: the gate does.
Built by `replica`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Generic, Never, TypeVar

import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError
from kubeio.models import Object
from kubeio.queues.workqueue import QueueClosed, WorkQueue
from kubeio.rest.events import EventRecorder
from shard_controller.api import Controller
from shard_controller.attempts import Attempts
from shard_controller.cache import Cache, Kind, Task
from shard_controller.drain import NotAcknowledged
from shard_controller.gate import Gate
from shard_controller.guard import Guard
from shard_controller.history import History
from shard_controller.intake import Intake
from shard_controller.metrics import ControllerMetrics
from shard_controller.ownership import Acknowledge, Drop, Reconcile, Reread, Wait
from shard_controller.resync import Resync
from shard_controller.turns import Turns
from shard_controller.writes import Writer

log = structlog.get_logger("shard_controller")
M = TypeVar("M")

TURN_S = 0.005
"""Reconciles that never wait for anything leave the loop to others after this long, all together."""
HANDOFFS = 64
"""Objects given up at the same time, beside the reconciles: each waits for two answers of the server."""


class Worker(Generic[M]):
    """The consumers of one queue. `paused` and `stop` come from the same loop."""

    def __init__(
        self,
        controller: Controller[M],
        cache: Cache,
        guard: Guard,
        intake: Intake,
        attempts: Attempts[M],
        *,
        workers: int,
        writer: Writer,
        gate: Gate,
        queue: WorkQueue[Task],
        events: EventRecorder,
        history: History,
        metrics: ControllerMetrics,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._guard = guard
        self.intake = intake
        self.attempts = attempts
        self._writer = writer
        self._gate = gate
        self._queue = queue
        self._events = events
        self._history = history
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._workers = workers
        self._handoffs: set[asyncio.Task[None]] = set()
        self._turns = Turns(TURN_S)
        self.handed_over = 0
        """Keys taken from the queue so far: progress."""

    # -- consumers

    async def run(self) -> None:
        """Work until the queue is closed and empty."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._consume(group), name=f"{self._controller.name} worker {number}")
        finally:
            self.attempts.close()

    def beside(self) -> list[tuple[str, Coroutine[Any, Any, Never]]]:
        """What runs beside the consumers as long as the process works, by name; for when the caches are filled."""
        resync_s = self._controller.resync_s
        running = [("events", self._events.run())]
        if resync_s is not None:
            resync = Resync(
                self._cache.primary.store.keys,
                self.intake.resync,
                period_s=resync_s,
                clock=self._clock,
                rng=self._rng,
            )
            running.append(("resync", resync.run()))
        return running

    async def _consume(self, group: asyncio.TaskGroup) -> None:
        while True:
            if self._turns.is_over():  # before a key is taken: it would be kept from the others
                await self._turns.next()
            if not self._gate.is_open():
                await self._gate.wait_open()
            try:
                task = await self._queue.get()
            except QueueClosed:
                return
            self.handed_over += 1
            kind = self._cache.kind(task.resource)
            found = kind.get(task.key)
            if found is not None and self._guard.is_draining(found.meta) and len(self._handoffs) < HANDOFFS:
                # two round trips and no work, so no worker waits for it
                handoff = group.create_task(self._serve_later(task, kind), name="handoff")
                self._handoffs.add(handoff)
                handoff.add_done_callback(self._handoffs.discard)
            else:
                await self._serve(task, kind, found)

    async def _serve_later(self, task: Task, kind: Kind) -> None:
        await self._serve(task, kind, kind.get(task.key))

    async def _serve(self, task: Task, kind: Kind, found: Object | None) -> None:
        """Handle *task*, cached as *found*, unless the gate has closed meanwhile, and give its key back."""
        if not self._gate.start():
            self._queue.add(task)
            self._queue.done(task)
            return
        try:
            drained = self.intake.take_drained(task)
            for child in drained:
                await self._give_up(child)
            await self._look_at(task, kind, kind.get(task.key) if drained else found)
        except (KubeError, NotAcknowledged) as error:
            self._history.failed(task, error)
            # an unfinished child was put back, and waits as long as its root
            log.warning("handoff not finished", object=str(task), error=str(error))
            self._queue.add_rate_limited(task)
        except Exception as error:  # whatever an object brings about, the others go on
            self._history.failed(task, error)
            log.error("object not handled", object=str(task), error=str(error), exc_info=error)
            self._queue.add_rate_limited(task)
        finally:
            self._gate.end()
            self._queue.done(task)

    async def _give_up(self, task: Task) -> None:
        """Acknowledge the drain of a controlled object whose root is not being drained."""
        try:
            kind = self._cache.kind(task.resource)
            await self._look_at(task, kind, kind.get(task.key))
        except BaseException:
            self.intake.put_back(task)
            raise

    async def _look_at(self, task: Task, kind: Kind, found: Object | None) -> None:
        """Decide about one object, which the cache has as *found*, and act."""
        meta = found.meta if found is not None else None
        decision = self._guard.decide(kind, task.key, meta)
        was_read = isinstance(decision, Reread)
        if was_read:
            found = await self._writer.read(kind, task.key)
            if found is None:
                self._queue.forget(task)
                return
            meta = found.meta
            decision = self._guard.decide_read(kind, meta)
        match decision:
            case Reconcile(state=state) if was_read:
                self.intake.await_news(task, state.version)  # newer than the cache: its event is on the way
            case Reconcile() if found is not None:
                if kind is self._cache.primary and not self.intake.has_given_up(task):
                    await self.attempts.reconcile(task, found)
            case Drop(reason=reason):
                self._drop(task, kind, reason)
            case Wait():
                self._queue.add(self.intake.put_back(task))
            case Acknowledge(handoff=handoff) if meta is not None:
                await self._guard.hand_over(kind, meta, handoff)
                self._history.recovered(task)
                self._queue.forget(task)
            case _:
                raise AssertionError(f"{task}: {decision} of {meta}")

    def _drop(self, task: Task, kind: Kind, reason: str) -> None:
        if reason == "absent":
            self._guard.left(kind, task.key)
        else:
            self._metrics.foreign.inc()
            if reason == "superseded":
                self.intake.await_news(task, kind.floors.floor(task.key))
        self._history.recovered(task)
        self._queue.forget(task)
