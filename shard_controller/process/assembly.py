"""Assembly of the parts of a process, for a mode.

Owns the wiring of the parts, and the parts that depend on the mode (`Way`). `replica` and `controller_runtime` start
and stop them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from kubeio.clock import Clock
from kubeio.leases.lease import Leases
from kubeio.protocol import RingKeys
from kubeio.queues.metrics import QueueCollectors
from kubeio.queues.workqueue import WorkQueue
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder
from shard_controller.api.compute import ComputePool
from shard_controller.api.context import Surroundings
from shard_controller.api.controller import Controller
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches
from shard_controller.objects.fence import Fence
from shard_controller.objects.writer import FencedWriter
from shard_controller.observe.history import History
from shard_controller.observe.journal import Journal
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.observe.progress import Pulse
from shard_controller.observe.tracing import find_tracing
from shard_controller.process.controller_runtime import ControllerRuntime
from shard_controller.process.settings import Settings
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.reconcile.runner import ReconcileRunner
from shard_controller.reconcile.worker import Worker
from shard_controller.shard.gate import Gate
from shard_controller.shard.guard import Guard

log = structlog.get_logger("shard_controller")


@dataclass(frozen=True, slots=True)
class Way:
    """Parts and names that depend on the mode."""

    caches: Caches
    owned: dict[str, ApiResource]
    fence: Fence
    gate: Gate
    guard: Callable[[FencedWriter], Guard]
    journal: Journal
    selector: str
    ring: str
    shard: str
    leases: Leases | None
    keys: RingKeys | None


@dataclass(frozen=True, slots=True)
class Assembly:
    """Builds the parts of one process from what it has in every mode."""

    controller: Controller[Any]
    settings: Settings
    client: Client
    registry: CollectorRegistry
    metrics: ControllerMetrics
    history: History
    clock: Clock
    rng: random.Random

    @property
    def workers(self) -> int:
        """Reconciles at the same time."""
        return self.settings.workers or self.controller.workers

    def queue(self) -> WorkQueue[Request]:
        """The work queue; once per registry."""
        return WorkQueue(
            clock=self.clock,
            rng=self.rng,
            base_delay_s=self.controller.backoff.base_s,
            max_delay_s=self.controller.backoff.max_s,
            metrics=QueueCollectors(self.registry).named(self.controller.name),
        )

    def writer(self, way: Way) -> FencedWriter:
        """The writer of all reconciles, behind the fence of *way*."""
        return FencedWriter(
            self.client,
            way.fence,
            leases=way.leases,
            shard_label=way.keys.shard if way.keys else "",
            drain_label=way.keys.drain if way.keys else "",
            shard=way.shard,
            field_manager=self.controller.name,
            journal=way.journal,
            metrics=self.metrics,
            may_create=way.gate.is_open,
            clock=self.clock,
            rng=self.rng,
            tracing=find_tracing(shard=way.shard),
        )

    def runtime(self, way: Way, queue: WorkQueue[Request], pulse: Pulse) -> ControllerRuntime:
        """Informers and their end, for the selector of *way*."""
        return ControllerRuntime(
            self.client,
            way.caches,
            namespaces=self.settings.namespaces,
            label_selector=way.selector,
            queue=queue,
            gate=way.gate,
            pulse=pulse,
            silence_s=self.settings.silence_s,
            clock=self.clock,
            rng=self.rng,
        )

    def worker(
        self, way: Way, writer: FencedWriter, queue: WorkQueue[Request], tasks: asyncio.TaskGroup
    ) -> Worker[Any]:
        """The consumers of *queue*; *tasks* is the group that what outlives a reconcile runs in."""
        by_resource = {kind.resource: kind for kind in way.caches}
        around = Surroundings(
            caches=way.caches,
            kinds={text: by_resource[resource] for text, resource in way.owned.items()},
            writer=writer,
            client=self.client,
            events=EventRecorder(
                self.client,
                reporter=f"ringleader.dev/{self.controller.name}",
                instance=way.shard,
                clock=self.clock,
                rng=self.rng,
            ),
            compute=ComputePool(self.controller.compute_workers),
            tasks=tasks,
            ring=way.ring,
            shard=way.shard,
            wall=self.clock.wall,
            log=log.bind(controller=self.controller.name),
        )
        guard = way.guard(writer)
        handlers = EventHandlers(self.controller, way.caches, around.kinds, guard, queue)
        runner = ReconcileRunner(
            self.controller,
            around,
            handlers,
            workers=self.workers,
            queue=queue,
            journal=way.journal,
            history=self.history,
            tracing=find_tracing(shard=way.shard),
            metrics=self.metrics,
        )
        return Worker(
            self.controller,
            way.caches,
            guard,
            handlers,
            runner,
            workers=self.workers,
            writer=writer,
            gate=way.gate,
            queue=queue,
            events=around.events,
            history=self.history,
            metrics=self.metrics,
            clock=self.clock,
            rng=self.rng,
        )
