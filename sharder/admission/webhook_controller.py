"""The leader's part of a ring's webhook: keeps the configuration while it is wanted, and scans for late objects.

An answer given now may be stored a while later, under a ring that has changed since. The object then has a live owner
that is not the desired one, and no watch shows it. So the scan makes one more pass after a change of the ring, once
every object that was answered before it must have been stored or given up. For the same reason the configuration is
emptied first and removed after that time: a spec that is edited meanwhile, or the next leader, waits as long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import Forbidden, KubeError
from kubeio.program.failures import failure
from sharder.admission.webhook_configuration import (
    RETRY_S,
    empty_configuration,
    keep_configuration,
    remove_configuration,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kubeio.clock import Clock
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from sharder.admission.webhook import Webhook
    from sharder.moving.scan import Scan
    from sharder.planning.state import RingStates
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

LANDING_S: Final = 40.0
"""The API server gives a create up after 34 s (its requestTimeoutUpperBound), admission and storage together."""


class WebhookController:
    """Controller of one ring's webhook configuration. *webhook* is None in a sharder that serves none."""

    def __init__(
        self,
        client: Client,
        webhook: Webhook | None,
        spec: RingSpec,
        resources: Sequence[ApiResource],
        *,
        states: RingStates,
        scan: Scan,
        ring_uid: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._webhook = webhook
        self._spec = spec
        self._resources = resources
        self._states = states
        self._scan = scan
        self._ring_uid = ring_uid
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        if self._webhook is not None and self._spec.assign_at_admission and not self._releasing:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep(self._webhook), name="webhook configuration")
                tasks.create_task(self._scan_late(), name="late passes")
        else:
            await self._withdraw()

    async def _keep(self, webhook: Webhook) -> None:
        await keep_configuration(
            self._client,
            webhook.certificates,
            self._spec,
            self._resources,
            ring_uid=self._ring_uid,
            target=webhook.target,
            clock=self._clock,
        )

    async def _scan_late(self) -> None:
        """Request a pass once the answers under the former ring are stored; the first one for the sharder before us."""
        while True:
            state = self._states.current
            await asyncio.sleep(LANDING_S)
            self._scan.landed.set()
            if self._states.current.scan_version != state.scan_version:
                continue
            self._scan.request_pass(stays_converged=True)
            while self._states.current.scan_version == state.scan_version:
                await self._states.wait_newer(self._states.current)

    @property
    def _releasing(self) -> bool:
        return self._states.current.terms.releasing

    async def _withdraw(self) -> None:
        if self._webhook is None and self._spec.assign_at_admission and not self._releasing:
            log.warning(
                "ring is to be assigned at admission, and this sharder serves no webhook",
                ring=self._spec.name,
                remedy="give the sharders --webhook-bind, or the chart sharder.webhook.enabled",
            )
        is_in_cluster = bool(self._ring_uid)  # a ring in a file has no configuration
        was_asked = is_in_cluster and await self._insist(empty_configuration)
        if was_asked or (is_in_cluster and self._spec.assign_at_admission):
            await asyncio.sleep(LANDING_S)
            self._scan.request_pass(stays_converged=not self._releasing)
        self._scan.landed.set()  # before the pass that was requested begins
        if was_asked:
            await self._insist(remove_configuration)

    async def _insist(self, change: Callable[[Client, str], Awaitable[bool | None]]) -> bool:
        """Make *change* to the configuration, however long it takes; false if there is none."""
        logged = ""
        while True:
            try:
                return bool(await change(self._client, self._spec.name))
            except KubeError as error:
                message = failure(error).message
                if message != logged:
                    log.warning(
                        "webhook configuration could not be removed", ring=self._spec.name, error=message
                    )
                logged = message
                if self._releasing and isinstance(error, Forbidden):
                    return True  # it goes with the ring; nothing is labelled until then
                await asyncio.sleep(RETRY_S)
