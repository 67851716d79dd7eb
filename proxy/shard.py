"""One shard: its parts, started in order and stopped in order. The Lease first, then the relay, then the controller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from kubeio.access.cluster import Cluster
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.protocol import write_counts
from kubeio.rest.client import Client
from kubeio.rest.impersonation import Headers, headers_acting_as
from kubeio.rest.reviews import User
from kubeio.shard.host import ShardHost
from kubeio.shard.lease_acquisition import AcquiredLease, LeaseTemplate
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import TICK_S, StallDetector
from kubeio.shard.ring import RingView, wait_ring_over
from kubeio.shard.scale_down import ScaleDown
from proxy.companions import Companions
from proxy.controller_files import KUBECONFIG, controller_folder, environment, write_files
from proxy.controller_process import BehindRelay
from proxy.ending import end_on_cancel
from proxy.existence import Existence
from proxy.former import NEVER, FormerController
from proxy.gate import Gate
from proxy.handover import Handover
from proxy.health import Health
from proxy.informers import TreeInformers
from proxy.kinds import TreeKind
from proxy.locks import EchoLocks
from proxy.loopback import Loopback
from proxy.metrics import ProxyMetrics
from proxy.object_writer import ObjectWriter
from proxy.relay import Relay
from proxy.restart import Pace
from proxy.runs import Runs
from proxy.settings import Settings
from proxy.shard_director import ShardDirector
from proxy.trees import Trees
from proxy.under_lease import UnderLease

log = structlog.get_logger("proxy")

_PROGRESS_DEADLINE_S: Final = 60.0
_PLACEHOLDER: Final = "{kubeconfig}"
"""In the command: for programs that want their kubeconfig in a flag."""


@dataclass(frozen=True, slots=True)
class RingPart:
    """What of a ring the controller works: *kinds* of trees, and their *companions*.

    *account*: the process's own, if requests of the controller name the life that sends them.
    """

    view: RingView
    kinds: list[TreeKind]
    companions: dict[str, TreeKind]
    account: User | None


class Shard:
    """The controller and its relay under one Lease."""

    def __init__(
        self,
        settings: Settings,
        host: ShardHost,
        cluster: Cluster,
        client: Client,
        *,
        part: RingPart,
        loopback: Loopback,
        health: Health,
        metrics: ProxyMetrics,
    ) -> None:
        self._settings: Final = settings
        self._host: Final = host
        self._cluster: Final = cluster
        self._client: Final = client
        self._part: Final = part
        self._kinds: Final = part.kinds
        self._view: Final = part.view
        self._loopback: Final = loopback
        self._health: Final = health
        self._metrics: Final = metrics
        self._trees = Trees("", since=NEVER)
        self._informers: TreeInformers | None = None
        self._is_synced = False

    async def work(self, acquired: AcquiredLease, template: LeaseTemplate, leases: Leases) -> int:
        """Run the controller under *acquired* until cancelled; then release the Lease."""
        host, clock, keys = self._host, self._host.clock, template.keys
        validity = LeaseValidity(duration_s=template.validity_s, sent_at=acquired.sent_at)
        self._health.validity = validity
        self._watch(validity, template)
        progress = StallDetector(deadline_s=_PROGRESS_DEADLINE_S, clock=clock)
        heartbeat = host.heartbeat(
            self._cluster, acquired.lease, validity=validity, progress=progress, on_phase=_log_phase
        )
        scale_down = ScaleDown(self._client, leases, template, objects=self._count, clock=clock, rng=host.rng)

        def marks() -> dict[str, str]:
            counts = {kind.name: 0 for kind in self._kinds} | self._trees.counts()
            leaving = {keys.leaving: "true"} if scale_down.is_leaving else {}
            return {keys.synced: "true", keys.objects: write_counts(counts), **leaving}

        async def leave(stop: Callable[[], None]) -> None:
            """Before the end of a shard that is scaled away: *stop* its controller, and give everything up."""

            def announce() -> None:
                stop()
                heartbeat.announce(marks)

            grace_s = self._settings.termination_grace_s
            if grace_s is not None and self._is_synced:
                await scale_down.hand_over(announce, grace_s=grace_s, renews_each_s=template.validity_s / 3)

        def on_synced() -> None:
            self._is_synced = True
            heartbeat.announce(marks)

        heartbeat.start()
        may_release = False
        try:
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(self._tick(progress, validity), name="progress")
                await self._run(acquired.name, validity, leases, on_synced=on_synced, leave=leave)
                ticking.cancel()
            may_release = True
        finally:
            await heartbeat.stop(release=may_release, without=keys.hold if scale_down.is_leaving else "")
        return 0

    def _watch(self, validity: LeaseValidity, template: LeaseTemplate) -> None:
        """Export the Lease, and the objects of each kind."""
        shard, clock = self._metrics.shard, self._host.clock
        shard.watch_lease(
            lambda: validity.age_s(clock.now()),
            ring=template.keys.ring,
            member=template.member,
            duration_s=template.duration_s,
        )
        for kind in self._kinds:
            shard.watch_objects(kind.name, partial(self._count_of, kind.name))

    def _count_of(self, resource: str) -> int:
        return self._trees.counts().get(resource, 0)

    def _count(self) -> int:
        """Objects of the shard; not zero while that is not known."""
        return len(self._trees) if self._informers is not None and self._informers.is_synced else 1

    async def _run(
        self,
        shard: str,
        validity: LeaseValidity,
        leases: Leases,
        *,
        on_synced: Callable[[], None],
        leave: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        """Serve the controller until cancelled. Returns when it has ended and every write of it is answered."""
        settings, keys, clock = self._settings, self._view.keys, self._host.clock
        existence = Existence(self._client, [kind.resource for kind in self._kinds])
        gate = Gate(validity, existence, clock=clock)
        director = ShardDirector(
            gate,
            self._kinds,
            keys=keys,
            shard=shard,
            newest=self._newest,
            companions=Companions(self._part.companions, gate, self._client, keys=keys, shard=shard),
            refused=self._metrics.refused,
        )
        loopback, locks = self._loopback, EchoLocks(settings.locks)
        relay = Relay(
            self._cluster, loopback=loopback, director=director, locks=locks, impersonation=self._names(shard)
        )
        self._metrics.watch_connections(lambda: relay.pairs)
        resources = {kind.name: kind.resource for kind in self._kinds}
        writer = ObjectWriter(
            self._client, SharedLeaseReads(leases), keys=keys, shard=shard, resources=resources
        )
        former = FormerController(self._client, self._view, clock=clock)

        async def new_trees() -> Trees:
            self._informers = None  # the last run's trees go before the next ones come
            self._trees = Trees(shard, since=await former.worked_until())
            return self._trees

        def follow(trees: Trees, changed: Callable[[], None]) -> TreeInformers:
            self._informers = TreeInformers(
                self._client,
                self._kinds,
                trees,
                keys=keys,
                shard=shard,
                changed=changed,
                clock=clock,
                rng=self._host.rng,
            )
            return self._informers

        with controller_folder(settings.controller_files) as folder:
            async with relay.serving() as port:
                namespace = settings.namespace or self._cluster.namespace
                write_files(folder, port=port, ca=loopback.ca, token=loopback.token, namespace=namespace)
                process = BehindRelay(
                    [part.replace(_PLACEHOLDER, str(folder / KUBECONFIG)) for part in settings.command],
                    relay,
                    locks,
                    environment=environment(os.environ, folder, port=port),
                    stop_within_s=settings.stop_within_s,
                    liveness=self._health.liveness,
                )
                runs = Runs(
                    UnderLease(process, validity, clock=clock),
                    gate,
                    Handover(writer, clock=clock),
                    new_trees=new_trees,
                    follow=follow,
                    pace=Pace(),
                    clock=clock,
                    rng=self._host.rng,
                )
                self._health.why_down = lambda: runs.why_down
                stopping, over = asyncio.Event(), asyncio.Event()
                running = runs.run(
                    stopping, over=over, on_synced=on_synced, on_restart=self._metrics.restarted
                )
                async with asyncio.TaskGroup() as tasks:
                    ring = tasks.create_task(self._end_with_ring((stopping, over)), name="ring poll")
                    await end_on_cancel(running, lambda: leave(stopping.set), (stopping, over))
                    ring.cancel()

    async def _end_with_ring(self, ends: Iterable[asyncio.Event]) -> None:
        """Set *ends* once the ring is being deleted and nothing of it is this shard's any more."""
        name = self._view.metadata.name
        await wait_ring_over(self._client, name, is_empty=lambda: not self._count(), rng=self._host.rng)
        for event in ends:
            event.set()

    def _newest(self, name: str) -> str:
        return self._informers.newest(name) if self._informers is not None else ""

    def _names(self, shard: str) -> Headers:
        account = self._part.account
        if account is None:
            return ()
        extra = self._view.keys.life_extra
        return headers_acting_as(account, self._cluster, extra=extra, value=shard)

    async def _tick(self, progress: StallDetector, validity: LeaseValidity) -> None:
        """Signs of life of this loop, for the heartbeat."""
        clock = self._host.clock
        while True:
            is_held = validity.holds(clock.now())
            progress.tick(due=0, taken=0, is_fresh=self._is_fresh(), is_held=is_held)
            await asyncio.sleep(TICK_S)

    def _is_fresh(self) -> bool:
        return self._informers is None or self._informers.is_fresh(self._host.clock.now())


def _log_phase(phase: Phase) -> None:
    log.info("lease phase", phase=phase.value)
