"""The webhook of one sharder: server, certificates, and an admission handler for each ring that asks for one.

Leader and standbys serve alike. Only the leader writes: the keys here, the configurations in
`sharder.admission.webhook_controller`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.cancellation import cancellable
from kubeio.errors import KubeError
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.program.failures import failure
from kubeio.program.http_server import HttpRequest, Limits, Reply
from sharder.admission.certificate_manager import CertificateManager, server_context
from sharder.admission.dispatcher import DEADLINE_S, Dispatcher
from sharder.admission.handler import AdmissionHandler
from sharder.admission.settings import BIND_FLAG
from sharder.planning.controllers import read_controller
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates
from sharder.ringspec.scope import EVERYWHERE
from sharder.unowned.namespaces import Namespaces, selected_at_first

if TYPE_CHECKING:
    from kubeio.program.host import Host
    from kubeio.rest.client import Client
    from sharder.admission.metrics import AdmissionMetrics
    from sharder.admission.settings import WebhookSettings
    from sharder.membership.controller import MembershipController
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

RETRY_S: Final = 10.0
_LIMITS: Final = Limits(connections=256, body_bytes=4 * 1024 * 1024, held_bytes=32 * 1024 * 1024)


class Webhook:
    """Serves while the scope lasts. *client* is its own: evidence never queues behind patches."""

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings,
        *,
        metrics: AdmissionMetrics,
        host: Host,
    ) -> None:
        self.target: Final = settings.target
        self._client = client
        self._host = host
        self._metrics = metrics
        self._dispatcher = Dispatcher(metrics=metrics, clock=host.clock)
        tls = server_context()
        self._server = host.serve(
            settings.host,
            settings.port,
            self._answer,
            flag=BIND_FLAG,
            tls=tls,
            methods=("POST",),
            limits=_LIMITS,
        )
        self.certificates: Final = CertificateManager(
            client,
            namespace=settings.namespace,
            name=settings.secret,
            names=(settings.target.host,),
            lifetimes=settings.lifetimes,
            clock=host.clock,
            tls=tls,
            expires_at=metrics.certificate_expires_at,
        )

    async def __aenter__(self) -> Webhook:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._server.__aexit__(exc_type, exc, traceback)

    async def _answer(self, request: HttpRequest) -> Reply:
        return await self._dispatcher.answer(request.path, request.body)

    async def run(self) -> None:
        """Keep the keys until cancelled."""
        await self.certificates.run()

    def lead(self) -> None:
        """This sharder writes from now on."""
        self.certificates.lead()

    def forget(self, ring: str) -> None:
        """Drop the metrics of *ring*: it is gone."""
        self._metrics.forget(ring)

    async def serve(
        self, spec: RingSpec, kinds: RingKinds, membership: MembershipController, *, releasing: bool
    ) -> None:
        """Answer for one ring until cancelled. An obstacle is logged; the ring is worked all the same."""
        while True:
            try:
                serving = self._serve(spec, kinds, membership, releasing=releasing)
                await cancellable(serving, name=f"admission of {spec.name}")
            except* KubeError as group:
                messages = [
                    failure(error).message for error in group.exceptions if isinstance(error, KubeError)
                ]
                log.warning("ring cannot be answered for", ring=spec.name, error="; ".join(messages))
            await asyncio.sleep(RETRY_S)

    async def _serve(
        self, spec: RingSpec, kinds: RingKinds, membership: MembershipController, *, releasing: bool
    ) -> None:
        # the former Lease itself shows whether the ring is activated
        terms = Terms(paused=spec.paused, activated=True, releasing=releasing)
        states = RingStates(membership, terms, selected_at_first(spec, EVERYWHERE))
        namespaces = Namespaces(
            self._client,
            spec,
            scope=EVERYWHERE,
            on_change=states.set_selected,
            clock=self._host.clock,
            rng=self._host.rng,
        )
        former = spec.activation.namespace if spec.activation is not None else spec.lease_namespace
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(namespaces.run(), name=f"admission namespaces {spec.name}")
            handler = AdmissionHandler(
                spec=spec,
                kinds=kinds,
                states=states,
                namespaces=namespaces,
                read_controller=partial(read_controller, self._client, kinds=kinds, keys=spec.keys),
                leases=SharedLeaseReads(self._leases(spec.lease_namespace)),
                former=SharedLeaseReads(self._leases(former)),
            )
            with self._dispatcher.open(spec.keys, handler):
                await asyncio.Event().wait()

    def _leases(self, namespace: str) -> Leases:
        return Leases(self._client, namespace, timeout_s=DEADLINE_S)
