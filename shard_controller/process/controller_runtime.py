"""Controller runtime: informers, queue and workers of one controller, from the first list to the last answer.

The same in every mode; the parts that differ (selector, gate, guard, fence) are passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Never

import structlog

from kubeio.clock import Clock
from kubeio.queues.workqueue import WorkQueue
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.store import Change
from kubeio.watches.versions import order
from kubeio.watches.watch import ListWatch
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache
from shard_controller.objects.writer import FencedWriter
from shard_controller.observe.progress import TICK_S, Pulse
from shard_controller.reconcile.worker import Worker
from shard_controller.shard.gate import Gate

log = structlog.get_logger("shard_controller")

_SWEEP_TICKS = 10


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Outcome of a stop: *is_settled* if every request that was sent is answered or too old to be carried out."""

    is_settled: bool


class ControllerRuntime:
    """Runs one `Worker` over the informers of its resources."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        namespaces: tuple[str, ...],
        label_selector: str,
        queue: WorkQueue[Request],
        gate: Gate,
        pulse: Pulse,
        silence_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._caches = caches
        self._silence_s = silence_s
        self._queue = queue
        self._gate = gate
        self._pulse = pulse
        self._clock = clock
        self._worker: Worker[object] | None = None
        self._sources: dict[ResourceCache, list[ListWatch]] = {}
        self._informers: list[Informer] = []

        def follow(kind: ResourceCache, namespaces: tuple[str, ...], label_selector: str) -> None:
            self._sources[kind] = []
            for namespace in (namespaces if kind.resource.namespaced else ()) or ("",):
                source = ListWatch(
                    ListerWatcher(
                        client,
                        kind.resource,
                        namespace=namespace,
                        label_selector=label_selector,
                        metadata_only=kind.is_metadata_only,
                    ),
                    silence_s=silence_s,
                    clock=clock,
                    rng=rng,
                )
                self._sources[kind].append(source)
                informer = Informer(
                    source, store=kind.store, namespace=namespace, on_change=self._hears(kind)
                )
                self._informers.append(informer)

        for kind in caches:
            follow(kind, namespaces, label_selector)
        for watched in caches.watched.values():
            follow(watched, watched.watch.namespaces or namespaces, watched.watch.label_selector)

    def _hears(self, kind: ResourceCache) -> Callable[[Change], None]:
        def watched_changed(kind: ReadOnlyCache, change: Change) -> None:
            if self._worker is not None:
                self._worker.handlers.watched_changed(kind, change)

        def changed(change: Change) -> None:
            if self._worker is not None:
                self._worker.handlers.changed(kind, change)

        return partial(watched_changed, kind) if isinstance(kind, ReadOnlyCache) else changed

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers)

    async def wait_synced(self) -> None:
        """Return once every cache has its first list."""
        for informer in self._informers:
            await informer.synced.wait()

    async def run(
        self,
        build: Callable[[asyncio.TaskGroup], Worker[object]],
        writer: FencedWriter,
        *,
        stopping: asyncio.Event,
        timeout_s: float,
        stop_within_s: float,
    ) -> StopRequest:
        """Work until *stopping*, then end what runs. *build* makes the worker in the runtime's task group."""
        async with asyncio.TaskGroup() as outlasting:
            async with asyncio.TaskGroup() as group:
                worker = self._worker = build(group)
                # it outlasts the others: what cannot be stopped must not hold up the end of the process
                ticker = outlasting.create_task(self._tick(worker), name="ticker")
                helpers: list[asyncio.Task[Never]] = [
                    group.create_task(
                        informer.run(), name=f"informer {informer.source.resource.group_resource}"
                    )
                    for informer in self._informers
                ]
                stop = asyncio.create_task(stopping.wait(), name="stop")  # ended below, whatever happens
                try:
                    await self._until_synced(stop)
                    worker.handlers.caches_full()
                    working = group.create_task(worker.run(), name="workers")
                    helpers += [group.create_task(call, name=name) for name, call in worker.beside()]
                    if not stopping.is_set():
                        resources = [kind.name for kind in self._sources]
                        log.info("working", resources=resources, objects=len(self._caches.primary.store))
                    await stop
                    await self._end(worker, working, timeout_s)
                finally:
                    stop.cancel()
                settled = await self._settle(writer, stop_within_s)
                for helper in helpers:
                    helper.cancel()
            ticker.cancel()
        return StopRequest(settled)

    async def _until_synced(self, stop: asyncio.Task[bool]) -> None:
        """Wait for every first picture, or for *stop*."""
        async with asyncio.TaskGroup() as group:
            synced = [
                group.create_task(informer.synced.wait(), name="first list") for informer in self._informers
            ]
            pending: set[asyncio.Task[bool]] = set(synced)
            while pending and not stop.done():
                await asyncio.wait({*pending, stop}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
            for task in pending:
                task.cancel()

    async def _end(self, worker: Worker[object], working: asyncio.Task[None], timeout_s: float) -> None:
        """Start nothing more; give what runs *timeout_s*, then interrupt it, then cancel it."""
        log.info("stopping", running=len(self._queue.processing))
        self._queue.close(drain=False)
        for patience_s, insist in (
            (timeout_s, lambda: worker.runner.interrupt("stop")),
            (1.0, working.cancel),
        ):
            if self._gate.is_open():
                await asyncio.wait({working}, timeout=patience_s)
            if not working.done():
                insist()
        await asyncio.wait({working})

    async def _settle(self, writer: FencedWriter, within_s: float) -> bool:
        """Wait, within reason, until no request of ours can still be carried out."""
        wait_s = writer.unanswered.settled_in_s()
        if wait_s is None or wait_s > within_s:
            return False
        await asyncio.sleep(wait_s)
        return True

    async def _tick(self, worker: Worker[object]) -> Never:
        """Tell the heartbeat that this loop lives, and tidy up now and then."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock.now()
            self._pulse.tick(
                due=len(self._queue),
                handed_over=worker.handed_over,
                is_fresh=all(now - i.sign_of_life_at <= self._silence_s for i in self._informers),
                is_held=self._gate.is_open(),
            )
            worker.runner.check_overruns()
            ticks += 1
            if ticks % _SWEEP_TICKS == 0:
                for kind in self._caches:
                    kind.sweep(self._streamed(kind))

    def _streamed(self, kind: ResourceCache) -> int:
        """Up to which version every watch of *kind* has come."""
        return min(order(source.resource_version) for source in self._sources[kind])
