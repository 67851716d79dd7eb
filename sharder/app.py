"""The sharder as a process: probes, rings as a standby, then leadership; composed here and nowhere else.

Losing leadership ends the process: the restarted process is a standby without stale knowledge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from kubeio.leases.election import leader_gauge, leadership
from kubeio.leases.lease import Leases
from kubeio.program import probes
from kubeio.program.access_gate import AccessGate
from kubeio.program.host import Host
from kubeio.program.http_server import write_port
from kubeio.program.logs import watch_dropped
from kubeio.program.pages import GuardedPages
from kubeio.rest.discovery import Discovery
from kubeio.rest.metrics import ClientMetrics
from kubeio.rest.reviews import Reviews
from sharder.live.state import LiveState
from sharder.live.stream import RIGHT, LiveStream
from sharder.metrics import LimiterMetrics, SharderMetrics
from sharder.rings.manager import RingManager
from sharder.rings.ring_file import FileRing
from sharder.schema import crd_gauge, upgrade_crd
from sharder.sharder_context import SharderContext
from sharder.writing.adaptive_limit import MOST
from sharder.writing.limiter import WriteLimiter

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from sharder.admission.settings import WebhookSettings
    from sharder.admission.webhook import Webhook
    from sharder.settings import Settings

log = structlog.get_logger("sharder")

READS: Final = 16
"""Connections beside those that patches may use: lists never queue behind them."""
LOOK_PERIOD_S: Final = 0.4
"""A standby reads the election's Lease this often: no sharder acts from a leader's release to the next read."""


async def run(settings: Settings, host: Host | None = None) -> None:
    """Shard until cancelled. Raises LeadershipLost, HistoryWentBack, InputError, what makes the start impossible."""
    host = host or Host()
    cluster = host.cluster(kubeconfig=settings.kubeconfig, context=settings.context)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    clock, rng = host.clock, host.rng
    client_metrics = ClientMetrics(registry)
    # The election and the rings' Leases have connections of their own: they never queue behind patches.
    async with (
        host.client(
            cluster,
            max_connections=MOST + READS,
            user_agent="ringleader-sharder",
            metrics=client_metrics,
        ) as client,
        host.client(cluster, max_connections=2, user_agent="ringleader-sharder-election") as election,
        host.client(cluster, max_connections=8, user_agent="ringleader-sharder-leases") as leases,
        _webhook(settings.webhook, cluster, registry, host) as webhook,
    ):
        live = LiveState(identity=settings.identity, clock=clock)
        context = SharderContext(
            identity=settings.identity,
            client=client,
            lease_client=leases,
            discovery=Discovery(client),
            limiter=WriteLimiter(clock=clock, rng=rng),
            metrics=SharderMetrics(registry),
            clock=clock,
            rng=rng,
            webhook=webhook,
            live=live,
        )
        watch_dropped(registry)
        LimiterMetrics(registry, context.limiter)
        crd_outdated = crd_gauge(registry)
        rings: RingManager | FileRing
        if settings.ring_file is not None:
            rings = FileRing(context, settings.ring_file, release=settings.release)
        else:
            rings = RingManager(context, names=settings.rings)
        ready = {"rings": lambda: None if rings.synced.is_set() else "the rings have not been listed yet"}
        alive = {"leases": rings.why_not_alive}
        stream = LiveStream(live)
        guarded = GuardedPages(AccessGate(Reviews(client), path=RIGHT, clock=clock), stream.pages())
        pages = probes.Probes(registry, alive, ready_checks=ready, guarded=guarded)
        server = host.serve(settings.probes_host, settings.probes_port, pages.answer, flag=probes.FLAG)
        async with server as listening, asyncio.TaskGroup() as tasks:
            write_port(settings.probes_port_file, listening.port)
            tasks.create_task(rings.run(), name="rings")
            streaming = tasks.create_task(stream.run(), name="live stream")
            if webhook is not None:
                tasks.create_task(webhook.run(), name="webhook keys")
            await rings.synced.wait()
            async with leadership(
                Leases(election, settings.election_namespace),
                name=settings.election_lease,
                identity=settings.identity,
                lease_duration_s=settings.lease_duration_s,
                look_period_s=min(LOOK_PERIOD_S, settings.lease_duration_s / 7.5),
                clock=clock,
                rng=rng,
                on_waiting=live.set_leader,
                status=leader_gauge(registry),
            ):
                log.info("leading", identity=settings.identity)
                live.set_leader(settings.identity)
                if settings.upgrade_crd:
                    tasks.create_task(upgrade_crd(client, crd_outdated), name="ControllerRing resource")
                rings.lead()
                if webhook is not None:
                    webhook.lead()
                await rings.ended.wait()
            streaming.cancel()


@asynccontextmanager
async def _webhook(
    settings: WebhookSettings | None,
    cluster: Cluster,
    registry: CollectorRegistry,
    host: Host,
) -> AsyncIterator[Webhook | None]:
    """The webhook, listening, if it is asked for; its reads never queue behind the label patches."""
    if settings is None:
        yield None
        return
    from sharder.admission.metrics import AdmissionMetrics
    from sharder.admission.webhook import Webhook

    agent = "ringleader-sharder-webhook"
    async with (
        host.client(cluster, max_connections=16, user_agent=agent) as client,
        Webhook(client, settings, metrics=AdmissionMetrics(registry), host=host) as webhook,
    ):
        yield webhook
