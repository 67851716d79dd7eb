"""One proxy: its parts, started in order and stopped in order. The Lease first, then the relay, then the controller."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from kubeio.access.cluster import Cluster
from kubeio.errors import InputError
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.protocol import PROXY_MANAGER, write_counts
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.rest.impersonation import Headers, headers_acting_as
from kubeio.rest.reviews import User
from kubeio.shard.fence_wait import FenceWait
from kubeio.shard.host import ShardHost
from kubeio.shard.lease_acquisition import AcquiredLease, LeaseTemplate, acquire, check_lease_member
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import TICK_S, StallDetector
from kubeio.shard.ring import RingView, read_ring
from proxy.alias import NAME_LENGTH
from proxy.companions import Companions, find_companions
from proxy.controller_files import KUBECONFIG, environment, write_files
from proxy.controller_process import BehindRelay
from proxy.existence import Existence
from proxy.former import NEVER, worked_until
from proxy.gate import Gate
from proxy.informers import TreeInformers, TreeKind
from proxy.kinds import find_kinds
from proxy.locks import EchoLocks
from proxy.loopback import Loopback
from proxy.object_writer import ObjectWriter
from proxy.relay import Relay
from proxy.runs import Pace, Runs
from proxy.settings import Settings
from proxy.shard_director import ShardDirector
from proxy.trees import Trees

log = structlog.get_logger("proxy")

_PROGRESS_DEADLINE_S: Final = 60.0
_PLACEHOLDER: Final = "{kubeconfig}"
"""In the command: for programs that want their kubeconfig in a flag."""


async def serve(settings: Settings, host: ShardHost | None = None) -> int:
    """Run the controller as one shard until cancelled; the exit code. Raises: InputError, KubeError."""
    host = host or ShardHost()
    cluster = host.cluster(kubeconfig=settings.kubeconfig, context=settings.context)
    async with host.client(cluster, user_agent="ringleader-proxy") as client:
        view = await read_ring(client, settings.ring)
        kinds = await find_kinds(client, view, settings)
        companions = await find_companions(Discovery(client), settings.companions, kinds)
        leases = Leases(client, view.spec.lease_namespace)
        template = _template(view, settings, kinds, host)
        account = await _fenced_account(client, view, settings, kinds, host)
        acquired = await acquire(
            leases,
            template,
            namespace=view.spec.lease_namespace,
            clock=host.clock,
            rng=host.rng,
            processes=host.processes,
        )
        host.mark_children(acquired.name)
        structlog.contextvars.bind_contextvars(shard=acquired.name)
        proxy = Proxy(
            settings, host, cluster, client, kinds=kinds, companions=companions, view=view, account=account
        )
        return await proxy.work(acquired, template, leases)


async def _fenced_account(
    client: Client, view: RingView, settings: Settings, kinds: list[TreeKind], host: ShardHost
) -> User | None:
    """The account to act as once the API server's fence acts; None if requests are to name nothing."""
    if not settings.is_fenced:
        return None
    fence = FenceWait(
        client,
        view.keys,
        [kind.resource for kind in kinds],
        namespaces=(),
        host=host,
        instead="with --fence=none nothing refuses what a replica sends late",
    )
    return await fence.wait()


def _template(view: RingView, settings: Settings, kinds: list[TreeKind], host: ShardHost) -> LeaseTemplate:
    longest_s = view.spec.max_lease_duration_seconds
    if settings.lease_duration_s > longest_s:
        raise InputError(
            "--lease-duration",
            f"{settings.lease_duration_s}s",
            f"is longer than the ring's maxLeaseDurationSeconds {longest_s}",
            f"use {longest_s}s or less",
        )
    return LeaseTemplate(
        keys=view.keys,
        member=check_lease_member(settings.member),
        duration_s=settings.lease_duration_s,
        hold=settings.hold,
        identity=host.identity(),
        field_manager=PROXY_MANAGER,
        resources=tuple(kind.name for kind in kinds),
        pod=host.pod(settings.member),
        name_length=NAME_LENGTH,
    )


class Proxy:
    """The parts of one shard."""

    def __init__(
        self,
        settings: Settings,
        host: ShardHost,
        cluster: Cluster,
        client: Client,
        *,
        kinds: list[TreeKind],
        companions: dict[str, TreeKind],
        view: RingView,
        account: User | None,
    ) -> None:
        """*account*: the one of *client*, if requests of the controller name the life that sends them."""
        self._settings: Final = settings
        self._host: Final = host
        self._cluster: Final = cluster
        self._client: Final = client
        self._kinds: Final = kinds
        self._companions: Final = companions
        self._view: Final = view
        self._account: Final = account
        self._trees = Trees("", since=NEVER)
        self._informers: TreeInformers | None = None

    async def work(self, acquired: AcquiredLease, template: LeaseTemplate, leases: Leases) -> int:
        """Run the controller under *acquired* until cancelled; then release the Lease."""
        host, clock = self._host, self._host.clock
        validity = LeaseValidity(duration_s=template.duration_s, sent_at=acquired.sent_at)
        progress = StallDetector(deadline_s=_PROGRESS_DEADLINE_S, clock=clock)
        existence = Existence(self._client, [kind.resource for kind in self._kinds])
        gate = Gate(validity, existence, clock=clock)
        heartbeat = host.heartbeat(
            self._cluster, acquired.lease, validity=validity, progress=progress, on_phase=_log_phase
        )

        def marks() -> dict[str, str]:
            counts = {kind.name: 0 for kind in self._kinds} | self._trees.counts()
            return {template.keys.synced: "true", template.keys.objects: write_counts(counts)}

        heartbeat.start()
        may_release = False
        try:
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(self._tick(progress, validity), name="progress")
                await self._run(acquired.name, gate, leases, on_synced=lambda: heartbeat.announce(marks))
                ticking.cancel()
            may_release = True
        finally:
            await heartbeat.stop(release=may_release)
        return 0

    async def _run(self, shard: str, gate: Gate, leases: Leases, *, on_synced: Callable[[], None]) -> None:
        """Serve the controller until cancelled. Returns when it has ended and every write of it is answered."""
        settings, keys, clock = self._settings, self._view.keys, self._host.clock
        companions = Companions(self._companions, gate, self._client, keys=keys, shard=shard)
        director = ShardDirector(
            gate, self._kinds, keys=keys, shard=shard, newest=self._newest, companions=companions
        )
        loopback, locks = Loopback(clock.wall()), EchoLocks(settings.locks, clock)
        relay = Relay(
            self._cluster, loopback=loopback, director=director, locks=locks, impersonation=self._names(shard)
        )
        resources = {kind.name: kind.resource for kind in self._kinds}
        writer = ObjectWriter(
            self._client, SharedLeaseReads(leases), keys=keys, shard=shard, resources=resources
        )

        async def new_trees() -> Trees:
            self._trees = Trees(shard, since=await worked_until(self._client, self._view))
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

        with tempfile.TemporaryDirectory(prefix="ringleader-proxy-") as name:
            folder = Path(name)
            async with relay.serving() as port:
                namespace = settings.namespace or self._cluster.namespace
                write_files(folder, port=port, ca=loopback.ca, token=loopback.token, namespace=namespace)
                process = BehindRelay(
                    [part.replace(_PLACEHOLDER, str(folder / KUBECONFIG)) for part in settings.command],
                    relay,
                    locks,
                    environment=environment(os.environ, folder, port=port),
                    stop_within_s=settings.stop_within_s,
                )
                runs = Runs(
                    process,
                    gate,
                    writer,
                    new_trees=new_trees,
                    follow=follow,
                    pace=Pace(),
                    clock=clock,
                    rng=self._host.rng,
                )
                await _stop_on_cancel(runs, on_synced)

    def _names(self, shard: str) -> Headers:
        if self._account is None:
            return ()
        extra = self._view.keys.life_extra
        return headers_acting_as(self._account, self._cluster, extra=extra, value=shard)

    def _newest(self, name: str) -> str:
        return self._informers.newest(name) if self._informers is not None else ""

    async def _tick(self, progress: StallDetector, validity: LeaseValidity) -> None:
        """Signs of life of this loop, for the heartbeat."""
        clock = self._host.clock
        while True:
            is_held = validity.holds(clock.now())
            progress.tick(due=0, taken=0, is_fresh=self._is_fresh(), is_held=is_held)
            await asyncio.sleep(TICK_S)

    def _is_fresh(self) -> bool:
        return self._informers is None or self._informers.is_fresh(self._host.clock.now())


async def _stop_on_cancel(runs: Runs, on_synced: Callable[[], None]) -> None:
    """Run until cancelled; then end the controller in its own time."""
    stopping = asyncio.Event()
    task = asyncio.create_task(
        runs.run(stopping, on_synced=on_synced), name="runs"
    )  # ends before this function does
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() or stopping.is_set():
                task.cancel()
                raise
            stopping.set()
            if (current := asyncio.current_task()) is not None:
                current.uncancel()


def _log_phase(phase: Phase) -> None:
    log.info("lease phase", phase=phase.value)
