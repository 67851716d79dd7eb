"""One process of one controller: the parts for each mode, started in order and stopped in order.

Owns the composition: gate, guard, fence and selector of each mode, and the condition under which a Lease may be
released. Start: probes, ring, Lease with its heartbeat, informers, workers. Stop: work queue, running reconciles,
unanswered requests, Lease, probes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, assert_never

import structlog
from prometheus_client import CollectorRegistry

from kubeio.access.cluster import Cluster
from kubeio.clock import Clock
from kubeio.errors import InputError, KubeError
from kubeio.leases.election import LeadershipLost, leader_gauge, leadership
from kubeio.leases.lease import Leases
from kubeio.program.access_gate import AccessGate
from kubeio.program.http_server import HttpServer, write_port
from kubeio.program.probes import FLAG, Guarded, Probes
from kubeio.protocol import write_counts
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.reviews import Reviews
from shard_controller.api.controller import Controller, LeaderElected, Mode, Sharded, Single
from shard_controller.objects.caches import Caches
from shard_controller.objects.fence import ShardFence, VersionFence
from shard_controller.objects.writer import FencedWriter
from shard_controller.observe.history import History
from shard_controller.observe.journal import FileJournal, Journal, NoJournal
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.observe.progress import Pulse
from shard_controller.process.assembly import Assembly, Way
from shard_controller.process.controller_runtime import ControllerRuntime
from shard_controller.process.debug_pages import Inspection, Pages
from shard_controller.process.loop_watch import LoopWatch
from shard_controller.process.resources import find_resources
from shard_controller.process.settings import RingView, Settings, is_ring_ending, read_ring, ring_from_file
from shard_controller.reconcile.worker import Worker
from shard_controller.shard import process_proof, shard_lease
from shard_controller.shard.drain import DrainAcknowledger, Evidence
from shard_controller.shard.gate import Gate, OpenGate, ShardGate
from shard_controller.shard.guard import Guard, RingGuard, SoleGuard
from shard_controller.shard.heartbeat import LOST_LEASE_EXIT, HeartbeatThread
from shard_controller.shard.lease_validity import InFlight, LeaseValidity, Phase
from shard_controller.shard.shard_lease import ShardLease

log = structlog.get_logger("shard_controller")

_RING_POLL_S = 10.0
DEBUG_RIGHT = "/debug/objects"
"""The nonResourceURL that an account must be allowed to get to see any page below /debug."""


class Replica:
    """One process of one controller."""

    def __init__(
        self,
        controller: Controller[Any],
        settings: Settings,
        cluster: Cluster,
        client: Client,
        *,
        registry: CollectorRegistry,
        clock: Clock,
        stopping: asyncio.Event,
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._cluster = cluster
        self._client = client
        self._registry = registry
        self._clock = clock
        self._stopping = stopping
        self._rng = random.Random()  # noqa: S311 - jitter and names, no secrets
        workers = settings.workers or controller.workers
        self._metrics = ControllerMetrics(registry, controller=controller.name, workers=workers)
        self._pulse = Pulse()
        self._history = History(clock)
        self._assembly = Assembly(
            controller,
            settings,
            client,
            registry,
            metrics=self._metrics,
            history=self._history,
            clock=clock,
            rng=self._rng,
        )
        self._pages = Pages()
        self._runtime: ControllerRuntime | None = None
        self._writer: FencedWriter | None = None
        self._gate: Gate = OpenGate()

    def can_stop(self) -> bool:
        """Whether there is something running that ends when asked."""
        return self._runtime is not None

    async def work(self, mode: Mode) -> int:
        """Do what *mode* says until asked to stop; the exit code."""
        host, port = self._settings.probes_address
        ready = {"work": self._why_not_ready}
        watch = LoopWatch(
            blocked_s=self._settings.blocked_loop_s,
            describe=self._pages.queue_document,
            metrics=self._metrics,
            clock=self._clock,
        )
        probes = Probes(self._registry, {}, ready_checks=ready, guarded=self._guarded())
        async with watch, HttpServer(host, port, probes.answer, flag=FLAG) as server:
            write_port(self._settings.probes_port_file, server.port)
            match mode:
                case Sharded(ring=ring):
                    return await self._work_sharded(ring)
                case LeaderElected(name=name):
                    return await self._work_elected(name)
                case Single():
                    return await self._work_alone()
        assert_never(mode)

    def _guarded(self) -> Guarded:
        door = AccessGate(Reviews(self._client), path=DEBUG_RIGHT, clock=self._clock)
        return Guarded({DEBUG_RIGHT: self._pages.object_page, "/debug/queue": self._pages.queue_page}, door)

    def _has_all_answers(self) -> bool:
        return self._writer is None or self._writer.unanswered.settled_in_s() == 0

    def _why_not_ready(self) -> str | None:
        if self._runtime is None or not self._runtime.is_synced:
            return "caches are not filled yet"
        return None if self._gate.is_open() else "the lease is not held"

    # -- modes

    async def _work_sharded(self, ring: str) -> int:
        view = await self._read_ring(ring)
        if view.metadata.deletion_timestamp is not None:
            # A held Lease keeps the ring: replicas that are restarted for ever would never let it go.
            raise InputError("--ring", ring, "is being deleted", "wait until it is gone, then create it anew")
        caches, owned = await self._resources(view)
        template = self._template(view, caches)
        leases = Leases(self._client, view.spec.lease_namespace)
        born = await shard_lease.begin_life(
            leases,
            template,
            namespace=view.spec.lease_namespace,
            clock=self._clock,
            rng=self._rng,
            processes=process_proof.LinuxProcesses(),
        )
        process_proof.mark_children(born.name)
        return await self._live(born, template, caches, owned, leases)

    async def _read_ring(self, ring: str) -> RingView:
        path = self._settings.ring_file
        return ring_from_file(path, ring) if path else await read_ring(self._client, ring)

    async def _live(
        self,
        born: ShardLease,
        template: shard_lease.LeaseTemplate,
        caches: Caches,
        owned: dict[str, ApiResource],
        leases: Leases,
    ) -> int:
        """The life of one shard: from its first renewal to its release."""
        keys = template.keys
        structlog.contextvars.bind_contextvars(shard=born.name)
        validity = LeaseValidity(duration_s=template.duration_s, sent_at=born.sent_at)
        in_flight = InFlight()
        gate = ShardGate(validity, in_flight, self._clock)
        journal = self._journal(born.name)
        journal.life(member=template.member)
        self._metrics.watch_lease(lambda: validity.age_s(self._clock.now()))
        loop = asyncio.get_running_loop()
        workers: list[Worker[Any]] = []

        def follow(phase: Phase) -> None:
            age_s = round(validity.age_s(self._clock.now()), 2)
            log.info("lease phase", shard=born.name, phase=phase.value, age_s=age_s)
            gate.follow(phase)
            if phase is not Phase.HELD:
                for worker in workers:
                    worker.runner.interrupt("lease")

        heartbeat = HeartbeatThread(
            self._cluster,
            born.lease,
            validity=validity,
            in_flight=in_flight,
            pulse=self._pulse,
            # busy workers are not stuck before their reconciles are far beyond their time
            progress_deadline_s=max(self._settings.progress_deadline_s, 2 * self._controller.timeout_s),
            clock=self._clock,
            rng=self._rng,
            on_phase=lambda phase: _call_soon(loop, follow, phase),
        )
        evidence = Evidence(leases, keys)

        def marks() -> dict[str, str]:
            counts = {kind.resource.group_resource: len(kind.store) for kind in caches}
            return {keys.synced: "true", keys.objects: write_counts(counts)}

        def guard(writer: FencedWriter) -> Guard:
            handover = DrainAcknowledger(
                caches, writer, evidence, keys=keys, shard=born.name, metrics=self._metrics
            )
            return RingGuard(handover, gate, keys=keys, shard=born.name)

        way = Way(
            caches=caches,
            owned=owned,
            fence=ShardFence(keys, born.name),
            gate=gate,
            guard=guard,
            journal=journal,
            selector=f"{keys.shard}={born.name}",
            ring=keys.ring,
            shard=born.name,
            leases=leases,
            keys=keys,
        )
        heartbeat.start()
        may_release = False
        try:
            polled = "" if self._settings.ring_file else keys.ring
            may_release = await self._run_engine(
                way, workers, polled_ring=polled, on_synced=lambda: heartbeat.announce(marks)
            )
        finally:
            # after a failure too: every task has ended by now, so only lost answers can stand against it
            may_release = may_release or self._has_all_answers()
            await asyncio.to_thread(heartbeat.stop, release=may_release)
            if not may_release:
                log.warning("lease kept: a request of ours may still be carried out", shard=born.name)
        return 0

    async def _work_elected(self, name: str) -> int:
        caches, owned = await self._resources(None)
        namespace = (*self._settings.namespaces, self._cluster.namespace)[0]
        identity = shard_lease.fresh_name(self._settings.member_name, self._rng)
        try:
            async with leadership(
                Leases(self._client, namespace),
                name=name,
                identity=identity,
                lease_duration_s=self._settings.lease_duration_s,
                renew_deadline_s=self._settings.lease_duration_s * 2 / 3,
                retry_period_s=self._settings.lease_duration_s * 2 / 15,
                clock=self._clock,
                rng=self._rng,
                on_waiting=lambda leader: log.info("waiting", leader=leader),
                status=leader_gauge(self._registry),
            ):
                await self._run_engine(self._alone(caches, owned, identity), [], polled_ring="")
        except LeadershipLost as error:
            log.error("leadership lost", error=str(error))
            return LOST_LEASE_EXIT
        return 0

    async def _work_alone(self) -> int:
        caches, owned = await self._resources(None)
        await self._run_engine(self._alone(caches, owned, self._settings.member_name), [], polled_ring="")
        return 0

    def _alone(self, caches: Caches, owned: dict[str, ApiResource], identity: str) -> Way:
        journal = self._journal(identity)
        journal.life(member=self._settings.member_name)
        return Way(
            caches=caches,
            owned=owned,
            fence=VersionFence(),
            gate=OpenGate(),
            guard=lambda _: SoleGuard(),
            journal=journal,
            selector="",
            ring="",
            shard=identity,
            leases=None,
            keys=None,
        )

    # -- parts

    async def _run_engine(
        self,
        way: Way,
        workers: list[Worker[Any]],
        *,
        polled_ring: str,
        on_synced: Callable[[], None] = lambda: None,
    ) -> bool:
        """Work until asked to stop. True if every request that was sent is answered, or too old to matter."""
        queue = self._assembly.queue()
        writer = self._assembly.writer(way)
        runtime = self._assembly.runtime(way, queue, self._pulse)

        def build(tasks: asyncio.TaskGroup) -> Worker[Any]:
            worker = self._assembly.worker(way, writer, queue, tasks)
            workers.append(worker)
            return worker

        self._gate, self._runtime, self._writer = way.gate, runtime, writer
        self._pages.inspection = Inspection(
            way.caches,
            queue,
            self._history,
            controller=self._controller.name,
            shard=way.shard,
            keys=way.keys,
            clock=self._clock,
        )
        for kind in (
            *way.caches.watched.values(),
            *way.caches,
        ):  # the tree counts where a resource is in both
            self._metrics.watch_objects(kind.name, kind.store.__len__)
        async with asyncio.TaskGroup() as group:
            poll = group.create_task(self._watch_ring(polled_ring, way.caches), name="ring poll")
            syncing = group.create_task(_once_synced(runtime, on_synced), name="caches")
            stop = await runtime.run(
                build,
                writer,
                stopping=self._stopping,
                timeout_s=self._controller.timeout_s,
                stop_within_s=self._settings.stop_within_s,
            )
            poll.cancel()
            syncing.cancel()
        return stop.is_settled

    async def _resources(self, view: RingView | None) -> tuple[Caches, dict[str, ApiResource]]:
        return await find_resources(self._client, self._controller, self._settings, view, self._clock)

    def _template(self, view: RingView, caches: Caches) -> shard_lease.LeaseTemplate:
        longest_s = view.spec.max_lease_duration_seconds
        if self._settings.lease_duration_s > longest_s:
            raise InputError(
                "--lease-duration-s",
                self._settings.lease_duration_s,
                f"is longer than the ring's maxLeaseDurationSeconds {longest_s}",
                f"use {longest_s} or less",
            )
        return shard_lease.LeaseTemplate(
            keys=view.keys,
            member=shard_lease.check_member(self._settings.member_name),
            duration_s=self._settings.lease_duration_s,
            hold=self._settings.hold,
            identity=process_proof.this_process(),
            field_manager=self._controller.name,
            resources=tuple(kind.resource.group_resource for kind in caches),
            pod=process_proof.this_pod(self._settings.member_name),
        )

    def _journal(self, shard: str) -> Journal:
        path = self._settings.journal
        return FileJournal(path, shard=shard, clock=self._clock) if path else NoJournal()

    async def _watch_ring(self, ring: str, caches: Caches) -> None:
        """Stop once the ring is being deleted and nothing of it is ours any more."""
        while ring:
            await asyncio.sleep(_RING_POLL_S * self._rng.uniform(0.8, 1.2))
            try:
                is_ending = await is_ring_ending(self._client, ring)
            except KubeError as error:
                log.debug("ring not read", error=str(error))
                continue
            if is_ending and all(len(kind.store) == 0 for kind in caches):
                log.info("ring is going away", ring=ring)
                self._stopping.set()
                return


async def _once_synced(runtime: ControllerRuntime, on_synced: Callable[[], None]) -> None:
    await runtime.wait_synced()
    on_synced()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Phase], None], phase: Phase) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, phase)
