"""The parts of a process at work, put together for a mode.

Owns which part gets which, and what a mode decides (`Way`). When they run is `replica`'s and `engine`'s. Built by
`replica`.
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
from kubeio.labels import RingKeys
from kubeio.leases.lease import Leases
from kubeio.queues.metrics import QueueCollectors
from kubeio.queues.workqueue import WorkQueue
from kubeio.resource import Resource
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder
from shard_controller.api import Controller
from shard_controller.attempts import Attempts
from shard_controller.cache import Cache, Task
from shard_controller.compute import ComputePool
from shard_controller.config import Settings
from shard_controller.context import Surroundings
from shard_controller.engine import Engine
from shard_controller.fence import Fence
from shard_controller.gate import Gate
from shard_controller.guard import Guard
from shard_controller.history import History
from shard_controller.intake import Intake
from shard_controller.journal import Journal
from shard_controller.metrics import ControllerMetrics
from shard_controller.progress import Pulse
from shard_controller.tracing import find_tracing
from shard_controller.worker import Worker
from shard_controller.writes import Writer

log = structlog.get_logger("shard_controller")


@dataclass(frozen=True, slots=True)
class Way:
    """What the mode decides."""

    cache: Cache
    owned: dict[str, Resource]
    fence: Fence
    gate: Gate
    guard: Callable[[Writer], Guard]
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

    def queue(self) -> WorkQueue[Task]:
        """The work queue; once per registry."""
        return WorkQueue(
            clock=self.clock,
            rng=self.rng,
            base_delay_s=self.controller.backoff.base_s,
            max_delay_s=self.controller.backoff.max_s,
            metrics=QueueCollectors(self.registry).named(self.controller.name),
        )

    def writer(self, way: Way) -> Writer:
        """What sends the writes, behind the fence of *way*."""
        return Writer(
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

    def engine(self, way: Way, queue: WorkQueue[Task], pulse: Pulse) -> Engine:
        """Informers and their end, for the selector of *way*."""
        return Engine(
            self.client,
            way.cache,
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
        self, way: Way, writer: Writer, queue: WorkQueue[Task], tasks: asyncio.TaskGroup
    ) -> Worker[Any]:
        """The consumers of *queue*; *tasks* is the group that what outlives a reconcile runs in."""
        by_resource = {kind.resource: kind for kind in way.cache}
        around = Surroundings(
            cache=way.cache,
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
        intake = Intake(self.controller, way.cache, around.kinds, guard, queue)
        attempts = Attempts(
            self.controller,
            around,
            intake,
            workers=self.workers,
            queue=queue,
            journal=way.journal,
            history=self.history,
            tracing=find_tracing(shard=way.shard),
            metrics=self.metrics,
        )
        return Worker(
            self.controller,
            way.cache,
            guard,
            intake,
            attempts,
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
