"""One process of one controller: its parts, started in order and stopped in order.

Owns the composition, and the condition under which a Lease may be released. Start: probes, ring, Lease with its
heartbeat, informers, workers. Stop: work queue, running reconciles, unanswered requests, Lease, probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Never, assert_never

import structlog
from prometheus_client import CollectorRegistry

from kubeio.access.cluster import Cluster
from kubeio.errors import InputError
from kubeio.leases.election import LeadershipLost, leader_gauge, leadership
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.program.access_gate import AccessGate
from kubeio.program.http_server import write_port
from kubeio.program.pages import GuardedPages, json_page
from kubeio.program.probes import FLAG, Probes
from kubeio.protocol import write_counts
from kubeio.queues.metrics import QueueCollectors
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder
from kubeio.rest.reviews import Reviews, User
from kubeio.shard import lease_acquisition
from kubeio.shard.fence_wait import FenceWait
from kubeio.shard.heartbeat import LOST_LEASE_EXIT
from kubeio.shard.lease_acquisition import AcquiredLease
from kubeio.shard.lease_template import ring_lease_template
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import StallDetector
from kubeio.shard.ring import RingView, check_lasts, read_ring, ring_from_file, wait_ring_over
from kubeio.shard.scale_down import ScaleDown
from shard_controller.api.controller import Controller, LeaderElected, Mode, Sharded, Single
from shard_controller.objects.caches import Caches
from shard_controller.observe.history import History
from shard_controller.observe.journal import FileJournal
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.observe.observer import Observer, Observers
from shard_controller.observe.reconcile_log import ReconcileLog
from shard_controller.observe.tracing import Spans, find_spans
from shard_controller.process.controller_runtime import ControllerRuntime
from shard_controller.process.debug_pages import Inspection, Pages
from shard_controller.process.host import ReplicaHost
from shard_controller.process.informers import Informers
from shard_controller.process.resources import find_resources
from shard_controller.process.settings import Fence, Settings
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.reconcile.resync import Resync
from shard_controller.reconcile.runner import ReconcileRunner
from shard_controller.reconcile.worker import Worker
from shard_controller.shard.drain import READS_APART_S, DrainAcknowledger
from shard_controller.shard.identities import Identities, named, unnamed
from shard_controller.shard.ownership import ExclusiveOwnership, Ownership, ShardOwnership
from shard_controller.shard.writer import FencedWriter

log = structlog.get_logger("shard_controller")

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
        host: ReplicaHost,
        stopping: asyncio.Event,
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._cluster = cluster
        self._client = client
        self._registry = registry
        self._host = host
        self._clock = host.clock
        self._rng = host.rng
        self._stopping = stopping
        self._workers = settings.workers or controller.workers
        self._metrics = ControllerMetrics(registry, controller=controller.name, workers=self._workers)
        self._progress = StallDetector(
            # busy workers are not stuck before their reconciles are far beyond their time
            deadline_s=max(settings.progress_deadline_s, 2 * controller.timeout_s),
            clock=host.clock,
        )
        self._history = History(host.clock)
        self._pages = Pages()
        self._runtime: ControllerRuntime | None = None
        self._fence: FenceWait | None = None

    def can_stop(self) -> bool:
        """Whether there is something running that ends when asked."""
        return self._runtime is not None

    async def work(self, mode: Mode) -> int:
        """Do what *mode* says until asked to stop; the exit code."""
        if self._settings.fence == Fence.POLICY and not isinstance(mode, Sharded):
            raise InputError(
                "--fence", "policy", "is for shards: only their objects bear a name", "leave it out"
            )
        bind, port = self._settings.probes_address
        ready = {"work": self._why_not_ready}
        watch = self._host.watch_loop(
            blocked_s=self._settings.blocked_loop_s,
            describe=self._pages.queue_document,
            metrics=self._metrics,
        )
        probes = Probes(self._registry, {}, ready_checks=ready, guarded=self._guarded())
        async with watch, self._host.serve(bind, port, probes.answer, flag=FLAG) as server:
            write_port(self._settings.probes_port_file, server.port)
            match mode:
                case Sharded(ring=ring):
                    return await self._work_sharded(ring)
                case LeaderElected(name=name):
                    return await self._work_elected(name)
                case Single():
                    return await self._work_alone()
        assert_never(mode)

    def _guarded(self) -> GuardedPages:
        gate = AccessGate(Reviews(self._client), path=DEBUG_RIGHT, clock=self._clock)
        objects, queue = json_page(self._pages.object_page), json_page(self._pages.queue_page)
        return GuardedPages(gate, {DEBUG_RIGHT: objects, "/debug/queue": queue})

    def _why_not_ready(self) -> str | None:
        if self._fence is not None and self._fence.problem:
            return f"not fenced by policies: {self._fence.problem}"
        return "caches are not filled yet" if self._runtime is None else self._runtime.why_not_ready()

    # -- modes

    async def _work_sharded(self, ring: str) -> int:
        view = await self._read_ring(ring)
        check_lasts(view)
        caches = await self._resources(view)
        account = await self._fenced_account(view, caches)
        settings = self._settings
        template = ring_lease_template(
            view,
            self._host,
            member=settings.member_name,
            duration_s=settings.lease_duration_s,
            hold=settings.hold,
            grace_s=settings.termination_grace_s,
            resources=(kind.resource.group_resource for kind in caches),
            field_manager=self._controller.name,
        )
        leases = Leases(self._client, view.spec.lease_namespace)
        acquired = await lease_acquisition.acquire(
            leases,
            template,
            namespace=view.spec.lease_namespace,
            clock=self._clock,
            rng=self._rng,
            processes=self._host.processes,
        )
        self._host.mark_children(acquired.name)
        clients = unnamed(self._client)
        if account is not None:
            clients = named(self._client, account, keys=template.keys, shard=acquired.name)
        return await self._run_shard(acquired, template, caches, leases, clients)

    async def _fenced_account(self, view: RingView, caches: Caches) -> User | None:
        """The account to act as once the API server's fence acts; None if requests are to name nothing."""
        if self._settings.fence != Fence.POLICY:
            return None
        kinds = [kind.resource for kind in caches]
        self._fence = FenceWait(
            self._client,
            view.keys,
            kinds,
            namespaces=self._settings.namespaces,
            host=self._host,
            instead="with --fence=tests the tests in its patches are its fence",
        )
        return await self._fence.wait()

    async def _read_ring(self, ring: str) -> RingView:
        path = self._settings.ring_file
        return ring_from_file(path, ring) if path else await read_ring(self._client, ring)

    async def _run_shard(
        self,
        acquired: AcquiredLease,
        template: lease_acquisition.LeaseTemplate,
        caches: Caches,
        leases: Leases,
        clients: Identities,
    ) -> int:
        """Run one shard: from its first renewal to its release."""
        keys = template.keys
        structlog.contextvars.bind_contextvars(shard=acquired.name)
        validity = LeaseValidity(duration_s=template.validity_s, sent_at=acquired.sent_at)
        self._metrics.shard.watch_lease(
            lambda: validity.age_s(self._clock.now()),
            ring=keys.ring,
            member=template.member,
            duration_s=template.duration_s,
        )
        ownership = ShardOwnership(keys, acquired.name, validity=validity, clock=self._clock)
        scale_down = ScaleDown(
            self._client,
            leases,
            template,
            objects=lambda: sum(len(kind.store) for kind in caches),
            clock=self._clock,
            rng=self._rng,
        )
        runtime = self._build(caches, ownership, clients, leases)
        loop = asyncio.get_running_loop()

        def follow(phase: Phase) -> None:
            age_s = round(validity.age_s(self._clock.now()), 2)
            log.info("lease phase", shard=acquired.name, phase=phase.value, age_s=age_s)
            ownership.follow(phase)
            if phase is not Phase.HELD:
                runtime.runner.interrupt("lease")

        heartbeat = self._host.heartbeat(
            self._cluster,
            acquired.lease,
            validity=validity,
            progress=self._progress,
            on_phase=lambda phase: _call_soon(loop, follow, phase),
        )

        def marks() -> dict[str, str]:
            counts = {kind.resource.group_resource: len(kind.store) for kind in caches}
            leaving = {keys.leaving: "true"} if scale_down.is_leaving else {}
            return {keys.synced: "true", keys.objects: write_counts(counts), **leaving}

        async def end() -> None:
            """What comes before the end of work."""
            grace_s = self._settings.termination_grace_s
            if grace_s is not None and runtime.is_synced:
                await scale_down.hand_over(
                    lambda: heartbeat.announce(marks), grace_s=grace_s, renews_each_s=template.validity_s / 3
                )

        heartbeat.start()
        may_release = False
        try:
            polled = "" if self._settings.ring_file else keys.ring
            may_release = await self._run(
                runtime, caches, polled_ring=polled, on_synced=lambda: heartbeat.announce(marks), end=end
            )
        finally:
            # after a failure too: every task has ended by now, so only lost answers can stand against it
            may_release = may_release or runtime.has_all_answers()
            await heartbeat.stop(release=may_release, without=keys.hold if scale_down.is_leaving else "")
            if not may_release:
                log.warning("lease kept: a request of ours may still be carried out", shard=acquired.name)
        return 0

    async def _work_elected(self, name: str) -> int:
        caches = await self._resources(None)
        namespace = (*self._settings.namespaces, self._cluster.namespace)[0]
        identity = lease_acquisition.fresh_name(self._settings.member_name, self._rng)
        try:
            async with leadership(
                Leases(self._client, namespace),
                name=name,
                identity=identity,
                lease_duration_s=self._settings.lease_duration_s,
                clock=self._clock,
                rng=self._rng,
                on_waiting=lambda leader: log.info("waiting", leader=leader),
                status=leader_gauge(self._registry),
            ):
                runtime = self._build(caches, ExclusiveOwnership(identity), unnamed(self._client))
                await self._run(runtime, caches)
        except LeadershipLost as error:
            log.error("leadership lost", error=str(error))
            return LOST_LEASE_EXIT
        return 0

    async def _work_alone(self) -> int:
        caches = await self._resources(None)
        ownership = ExclusiveOwnership(self._settings.member_name)
        await self._run(self._build(caches, ownership, unnamed(self._client)), caches)
        return 0

    # -- parts

    def _build(
        self, caches: Caches, ownership: Ownership, clients: Identities, leases: Leases | None = None
    ) -> ControllerRuntime:
        """The parts that work under *ownership*, and the debug pages over them. *leases*: of the ring's shards."""
        controller, clock, rng = self._controller, self._clock, self._rng
        spans = find_spans(controller=controller.name, shard=ownership.shard)
        observers = self._observers(ownership.shard, spans)
        queue = ReconcileQueue(
            clock=clock,
            rng=rng,
            base_delay_s=controller.backoff.base_s,
            max_delay_s=controller.backoff.max_s,
            metrics=QueueCollectors(self._registry).named(controller.name),
        )
        writer = FencedWriter(
            clients,
            ownership,
            leases=leases,
            field_manager=controller.name,
            observers=observers,
            spans=spans,
            clock=clock,
            rng=rng,
        )
        drains = None
        if isinstance(ownership, ShardOwnership) and leases is not None:
            reads = SharedLeaseReads(leases, apart_s=READS_APART_S)
            drains = DrainAcknowledger(caches, ownership, writer, reads, self._metrics)
        events = EventRecorder(
            self._client,
            reporter=f"ringleader.dev/{controller.name}",
            instance=ownership.shard,
            clock=clock,
            rng=rng,
        )
        handlers = EventHandlers(controller, caches, ownership, queue)
        runner = ReconcileRunner(
            controller,
            caches,
            writer,
            events,
            queue,
            workers=self._workers,
            observers=observers,
            metrics=self._metrics,
        )
        worker = Worker(
            queue,
            caches,
            ownership,
            runner,
            drains=drains,
            history=self._history,
            metrics=self._metrics,
            clock=clock,
        )
        informers = Informers(
            self._client,
            caches,
            ownership,
            handlers,
            namespaces=self._settings.namespaces,
            silence_s=self._settings.silence_s,
            clock=clock,
            rng=rng,
        )
        beside: dict[str, Callable[[], Coroutine[Any, Any, Never]]] = {"events": events.run}
        if controller.resync_s is not None:
            keys, period_s = caches.primary.store.keys, controller.resync_s
            beside["resync"] = Resync(keys, handlers.resync, period_s=period_s, clock=clock, rng=rng).run
        self._pages.inspection = Inspection(
            caches, queue, self._history, ownership=ownership, controller=controller.name, clock=clock
        )
        # the tree counts where a resource is in both
        for kind in (*caches.watched.values(), *caches):
            self._metrics.shard.watch_objects(kind.name, kind.store.__len__)
        self._runtime = ControllerRuntime(
            informers,
            ownership,
            queue,
            worker,
            writer=writer,
            beside=beside,
            progress=self._progress,
            end_process=self._host.end_process,
        )
        return self._runtime

    async def _run(
        self,
        runtime: ControllerRuntime,
        caches: Caches,
        *,
        polled_ring: str = "",
        on_synced: Callable[[], None] = lambda: None,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Work until asked to stop and *end* is over. True if every request sent is answered, or too old to matter."""
        stopping = self._stopping if end is None else asyncio.Event()
        async with asyncio.TaskGroup() as group:
            poll = group.create_task(self._poll_ring(polled_ring, caches), name="ring poll")
            if end is not None:
                group.create_task(_set_after(self._stopping, end, stopping), name="end of work")
            settled = await runtime.run(
                stopping,
                on_synced=on_synced,
                timeout_s=self._controller.timeout_s,
                stop_within_s=self._settings.stop_within_s,
            )
            poll.cancel()
        return settled

    async def _poll_ring(self, ring: str, caches: Caches) -> None:
        """Stop once *ring* is being deleted and nothing of it is ours any more."""
        if ring:
            await wait_ring_over(
                self._client,
                ring,
                is_empty=lambda: not any(len(kind.store) for kind in caches),
                rng=self._rng,
            )
            self._stopping.set()

    async def _resources(self, view: RingView | None) -> Caches:
        return await find_resources(self._client, self._controller, self._settings, view)

    def _observers(self, shard: str, spans: Spans | None) -> Observers:
        """Observers of every reconcile; a journal begins with the name of *shard*."""
        observers: list[Observer] = [self._metrics, self._history]
        if self._settings.journal is not None:
            journal = FileJournal(self._settings.journal, shard=shard, clock=self._clock)
            journal.life(member=self._settings.member_name)
            observers.append(journal)
        if spans is not None:
            observers.append(spans)
        return (*observers, ReconcileLog(log.bind(controller=self._controller.name)))


async def _set_after(asked: asyncio.Event, end: Callable[[], Awaitable[None]], over: asyncio.Event) -> None:
    """Once *asked*, carry out *end*, and then set *over*."""
    await asked.wait()
    await end()
    over.set()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Phase], None], phase: Phase) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, phase)
