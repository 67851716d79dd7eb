"""A proxy from its settings to its end: what of its ring it works, its Lease, its shard."""

from __future__ import annotations

import contextlib

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from kubeio.access.cluster import SERVICE_ACCOUNT
from kubeio.leases.lease import Leases
from kubeio.program.logs import watch_dropped
from kubeio.program.probes import FLAG, Probes
from kubeio.protocol import PROXY_MANAGER
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.rest.metrics import ClientMetrics
from kubeio.rest.reviews import User
from kubeio.shard.fence_wait import FenceWait
from kubeio.shard.host import ShardHost
from kubeio.shard.lease_acquisition import acquire
from kubeio.shard.lease_template import ring_lease_template
from kubeio.shard.ring import RingView, check_lasts, read_ring
from proxy.alias import NAME_LENGTH
from proxy.companions import find_companions
from proxy.health import Health, controller_probe
from proxy.kinds import TreeKind, find_kinds
from proxy.loopback import Loopback
from proxy.metrics import ProxyMetrics
from proxy.settings import Settings
from proxy.shard import RingPart, Shard


async def serve(settings: Settings, host: ShardHost, loopback: Loopback) -> int:
    """Run the controller as one shard until cancelled; the exit code. Raises: InputError, KubeError."""
    cluster = host.cluster(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        service_account=settings.service_account or SERVICE_ACCOUNT,
    )
    readiness = controller_probe(settings.controller_readiness, "--controller-readiness")
    liveness = controller_probe(settings.controller_liveness, "--controller-liveness")
    health = Health(host.clock, readiness=readiness, liveness=liveness)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    watch_dropped(registry)
    pages = Probes(registry, {}, ready_checks={"work": health.why_not_ready})
    metrics = ProxyMetrics(registry, controller=settings.ring)
    async with (
        host.client(cluster, user_agent="ringleader-proxy", metrics=ClientMetrics(registry)) as client,
        host.serve(*settings.probes_address, pages.answer, flag=FLAG),
        readiness.asking() if readiness else contextlib.nullcontext(),
    ):
        view = await read_ring(client, settings.ring)
        check_lasts(view)
        kinds = await find_kinds(client, view, resources=settings.resources, leaves=settings.leaves)
        companions = await find_companions(Discovery(client), settings.companions, kinds)
        leases = Leases(client, view.spec.lease_namespace)
        template = ring_lease_template(
            view,
            host,
            member=settings.member,
            duration_s=settings.lease_duration_s,
            hold=settings.hold,
            grace_s=settings.termination_grace_s,
            resources=(kind.name for kind in kinds),
            field_manager=PROXY_MANAGER,
            name_length=NAME_LENGTH,
        )
        account = await _fenced_account(client, view, kinds, host, health) if settings.is_fenced else None
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
        part = RingPart(view, kinds, companions, account)
        shard = Shard(
            settings, host, cluster, client, part=part, loopback=loopback, health=health, metrics=metrics
        )
        return await shard.work(acquired, template, leases)


async def _fenced_account(
    client: Client, view: RingView, kinds: list[TreeKind], host: ShardHost, health: Health
) -> User:
    """The account to act as, once the API server's fence acts."""
    fence = FenceWait(
        client,
        view.keys,
        [kind.resource for kind in kinds],
        namespaces=(),
        host=host,
        instead="with --fence=none nothing refuses what a replica sends late",
    )
    health.why_no_lease = lambda: f"not fenced by policies: {fence.problem}"
    return await fence.wait()
