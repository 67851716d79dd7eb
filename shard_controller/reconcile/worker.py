"""Consumers of the work queue: each takes a key, checks its ownership, and reconciles or hands over the object.

Owns the consumers and what follows from a decision. `runner` runs a reconcile; `ownership` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Generic, TypeVar

import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError
from kubeio.models import Object
from kubeio.queues.workqueue import QueueClosed
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ResourceCache, version_of
from shard_controller.observe.history import History
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.reconcile.runner import ReconcileRunner
from shard_controller.reconcile.time_slice import TimeSlice
from shard_controller.shard.drain import DrainAcknowledger, NotAcknowledged
from shard_controller.shard.ownership import Ownership
from shard_controller.shard.ownership_decisions import Acknowledge, Defer, Drop, Reconcile, Reread

log = structlog.get_logger("shard_controller")
M = TypeVar("M")

SLICE_S = 0.005
"""Reconciles that never wait for anything leave the loop to others after this long, all together."""
HANDOFFS = 64
"""Objects given up at the same time, beside the reconciles: each waits for two answers of the server."""


class Worker(Generic[M]):
    """The consumers of *queue*, as many as *runner* has workers. *drains*: None without a ring."""

    def __init__(
        self,
        queue: ReconcileQueue,
        caches: Caches,
        ownership: Ownership,
        runner: ReconcileRunner[M],
        *,
        drains: DrainAcknowledger | None,
        history: History,
        metrics: ControllerMetrics,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._caches = caches
        self._ownership = ownership
        self.runner = runner
        self._drains = drains
        self._history = history
        self._metrics = metrics
        self._handoffs: set[asyncio.Task[None]] = set()
        self._slice = TimeSlice(SLICE_S, now=clock.now)
        self.taken = 0
        """Keys taken from the queue so far: progress."""

    async def run(self) -> None:
        """Work until the queue is closed and empty."""
        name = self.runner.controller.name
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.runner.workers):
                    group.create_task(self._consume(group), name=f"{name} worker {number}")
        finally:
            self.runner.close()

    async def _consume(self, group: asyncio.TaskGroup) -> None:
        while True:
            if self._slice.is_over():  # before a key is taken: it would be kept from the others
                await self._slice.next()
            if not self._ownership.is_held():
                await self._ownership.wait_held()
            try:
                request = await self._queue.get()
            except QueueClosed:
                return
            self.taken += 1
            kind = self._caches.kind(request.resource)
            found = kind.get(request.key)
            if (
                found is not None
                and self._ownership.is_draining(found.meta)
                and len(self._handoffs) < HANDOFFS
            ):
                # two round trips and no work, so no worker waits for it
                handoff = group.create_task(self._serve_later(request, kind), name="handoff")
                self._handoffs.add(handoff)
                handoff.add_done_callback(self._handoffs.discard)
            else:
                await self._serve(request, kind, found)

    async def _serve_later(self, request: Request, kind: ResourceCache) -> None:
        await self._serve(request, kind, kind.get(request.key))

    async def _serve(self, request: Request, kind: ResourceCache, found: Object | None) -> None:
        """Handle *request*, cached as *found*, unless the Lease is too old meanwhile, and give its key back."""
        if not self._ownership.start():
            self._queue.add(request)
            self._queue.done(request)
            return
        try:
            drained = self._queue.take_drained(request)
            if drained:
                await self._hand_over_controlled(drained)
            await self._handle(request, kind, kind.get(request.key) if drained else found)
        except (KubeError, NotAcknowledged) as error:
            self._history.failed(request, error)
            # an unfinished child was put back, and waits as long as its root
            log.warning("handoff not finished", object=str(request), error=str(error))
            self._queue.add_rate_limited(request)
        except Exception as error:  # whatever an object brings about, the others go on
            self._history.failed(request, error)
            log.error("object not handled", object=str(request), error=str(error), exc_info=error)
            self._queue.add_rate_limited(request)
        finally:
            self._ownership.end()
            self._queue.done(request)

    async def _hand_over_controlled(self, drained: Collection[Request]) -> None:
        """Acknowledge the drains of controlled objects whose root is not being drained.

        One that fails is put back, and stops no other. Raises the first error in the end.
        """
        errors: list[Exception] = []
        for request in drained:
            kind = self._caches.kind(request.resource)
            try:
                await self._handle(request, kind, kind.get(request.key))
            except Exception as error:
                self._requeue_with_root(request)
                errors.append(error)
        if errors:
            raise errors[0]

    async def _handle(self, request: Request, kind: ResourceCache, found: Object | None) -> None:
        """Decide about one object, which the cache has as *found*, and act."""
        meta = found.meta if found is not None else None
        decision = self._ownership.decide(kind, request.key, meta)
        was_read = isinstance(decision, Reread)
        if was_read and self._drains is not None:
            found = await self._drains.read(kind, request.key)
            if found is None:
                self._queue.forget(request)
                return
            meta = found.meta
            decision = self._ownership.decide_read(kind, meta)
        match decision:
            case Reconcile() if found is not None and not was_read:
                if kind is self._caches.primary and not self._queue.has_failed_permanently(request):
                    await self.runner.reconcile(request, found)
            case Reconcile(state=state) if was_read:  # newer than the cache: its event is on the way
                self._await_version(request, kind, state.version)
            case Drop(reason=reason):
                self._drop(request, kind, reason)
            case Defer():
                self._queue.add(self._requeue_with_root(request))
            case Acknowledge(handoff=handoff) if meta is not None and self._drains is not None:
                if wait_s := self._drains.waits_s(meta, handoff):
                    waits = log.bind(object=str(request), seconds=round(wait_s, 1))
                    waits.info("handoff waits for a create without an answer")
                    self._queue.add_after(request, wait_s)
                    return
                await self._drains.hand_over(kind, meta, handoff)
                self._history.recovered(request)
                self._queue.forget(request)
            case _:
                raise AssertionError(f"{request}: {decision} of {meta}")

    def _drop(self, request: Request, kind: ResourceCache, reason: str) -> None:
        if reason == "absent":
            self._ownership.left(kind, request.key)
        else:
            self._metrics.foreign.inc()
            if reason == "superseded":
                self._await_version(request, kind, self._ownership.floor(kind, request.key))
        self._history.recovered(request)
        self._queue.forget(request)

    def _await_version(self, request: Request, kind: ResourceCache, version: int) -> None:
        if kind is self._caches.primary:
            known = kind.store.meta(request.key)
            self._queue.await_version(request, version, known=version_of(known) if known else None)

    def _requeue_with_root(self, request: Request) -> Request:
        """Have *request* handled again with its root, whose key is given."""
        kind = self._caches.kind(request.resource)
        meta = kind.meta(request.key)
        root = self._caches.root(kind, meta) if meta is not None else request
        if root != request:
            self._queue.add_drained(root, request)
        return root
