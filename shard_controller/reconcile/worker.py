"""Consumers of the work queue: each takes a key, checks its ownership, and reconciles or hands over the object.

Owns the consumers and their decisions. One `Worker` per controller, with as many consumers as the controller has
workers. `runner` runs a reconcile. Knows nothing of processes and Leases: the gate does.
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
from shard_controller.api.controller import Controller
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ResourceCache
from shard_controller.objects.writer import FencedWriter
from shard_controller.observe.history import History
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.reconcile.resync import Resync
from shard_controller.reconcile.runner import ReconcileRunner
from shard_controller.reconcile.time_slice import Turns
from shard_controller.shard.decisions import Acknowledge, Drop, Reconcile, Reread, Wait
from shard_controller.shard.drain import NotAcknowledged
from shard_controller.shard.gate import Gate
from shard_controller.shard.guard import Guard

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
        caches: Caches,
        guard: Guard,
        handlers: EventHandlers,
        runner: ReconcileRunner[M],
        *,
        workers: int,
        writer: FencedWriter,
        gate: Gate,
        queue: WorkQueue[Request],
        events: EventRecorder,
        history: History,
        metrics: ControllerMetrics,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._controller = controller
        self._caches = caches
        self._guard = guard
        self.handlers = handlers
        self.runner = runner
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
            self.runner.close()

    def beside(self) -> list[tuple[str, Coroutine[Any, Any, Never]]]:
        """Coroutines that run beside the consumers while the process works, by name; for when the caches are filled."""
        resync_s = self._controller.resync_s
        running = [("events", self._events.run())]
        if resync_s is not None:
            resync = Resync(
                self._caches.primary.store.keys,
                self.handlers.resync,
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
            kind = self._caches.kind(task.resource)
            found = kind.get(task.key)
            if found is not None and self._guard.is_draining(found.meta) and len(self._handoffs) < HANDOFFS:
                # two round trips and no work, so no worker waits for it
                handoff = group.create_task(self._serve_later(task, kind), name="handoff")
                self._handoffs.add(handoff)
                handoff.add_done_callback(self._handoffs.discard)
            else:
                await self._serve(task, kind, found)

    async def _serve_later(self, task: Request, kind: ResourceCache) -> None:
        await self._serve(task, kind, kind.get(task.key))

    async def _serve(self, task: Request, kind: ResourceCache, found: Object | None) -> None:
        """Handle *task*, cached as *found*, unless the gate has closed meanwhile, and give its key back."""
        if not self._gate.start():
            self._queue.add(task)
            self._queue.done(task)
            return
        try:
            drained = self.handlers.take_drained(task)
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

    async def _give_up(self, task: Request) -> None:
        """Acknowledge the drain of a controlled object whose root is not being drained."""
        try:
            kind = self._caches.kind(task.resource)
            await self._look_at(task, kind, kind.get(task.key))
        except BaseException:
            self.handlers.put_back(task)
            raise

    async def _look_at(self, task: Request, kind: ResourceCache, found: Object | None) -> None:
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
                self.handlers.await_news(task, state.version)  # newer than the cache: its event is on the way
            case Reconcile() if found is not None:
                if kind is self._caches.primary and not self.handlers.has_given_up(task):
                    await self.runner.reconcile(task, found)
            case Drop(reason=reason):
                self._drop(task, kind, reason)
            case Wait():
                self._queue.add(self.handlers.put_back(task))
            case Acknowledge(handoff=handoff) if meta is not None:
                await self._guard.hand_over(kind, meta, handoff)
                self._history.recovered(task)
                self._queue.forget(task)
            case _:
                raise AssertionError(f"{task}: {decision} of {meta}")

    def _drop(self, task: Request, kind: ResourceCache, reason: str) -> None:
        if reason == "absent":
            self._guard.left(kind, task.key)
        else:
            self._metrics.foreign.inc()
            if reason == "superseded":
                self.handlers.await_news(task, kind.min_versions.floor(task.key))
        self._history.recovered(task)
        self._queue.forget(task)
