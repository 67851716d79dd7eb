"""Taking over from an unsharded controller: its leader-election Lease, held by the sharder (protocol, section 7).

Nothing is assigned until the Lease is ours, and it stays ours over fail-overs of the sharder: every sharder of a ring
holds it under the ring's name. It is given back when the ring is deleted and every object has been given up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.clock import micro_time
from kubeio.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubeio.leases.lease import Leases
from kubeio.models import Lease, LeaseSpec, Meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.ringspec.spec import LeaseRef

log = structlog.get_logger("sharder")

DURATION_S: Final = 15
LOOK_S: Final = 1.0


class Activation:
    """Whether the ring may assign. Without *former* it always may. *on_change* hears when the answer changes."""

    def __init__(
        self,
        client: Client,
        ring: str,
        former: LeaseRef | None,
        *,
        on_change: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.is_granted = former is None
        self._former = former
        self._holder = holder_of(ring)
        self._leases = Leases(client, former.namespace) if former else None
        self._on_change = on_change
        self._clock = clock
        self._seen: tuple[object, float] | None = None
        self._is_over = False

    async def run(self) -> None:
        """Take and keep the former Lease until cancelled; returns at once if there is none."""
        if self._former is None or self._leases is None:
            return
        while not self._is_over:
            try:
                lease = await self._step(self._leases, self._former)
                self._grant(lease is not None)
                pause_s = LOOK_S if lease is None else duration_s(lease) / 3
            except KubeError as error:
                log.warning("former lease could not be written", lease=self._former.name, error=str(error))
                pause_s = LOOK_S
            await asyncio.sleep(pause_s)

    async def give_back(self) -> None:
        """Release the Lease, so that the former controller may lead again. Raises KubeError."""
        self._is_over = True
        if self._former is None or self._leases is None:
            return
        lease = await self._leases.get(self._former.name)
        if lease.spec.holder_identity == self._holder:
            spec = msgspec.structs.replace(lease.spec, holder_identity="")
            await self._leases.swap(msgspec.structs.replace(lease, spec=spec))
        self._grant(False)

    async def _step(self, leases: Leases, former: LeaseRef) -> Lease | None:
        """One look at the Lease, and one write if it is ours or free; the Lease if it is ours now."""
        try:
            lease = await leases.get(former.name)
        except NotFound:
            return await self._create(leases, former)
        if lease.spec.holder_identity != self._holder and not self._is_free(lease):
            return None
        try:
            return await leases.swap(self._held(lease))
        except Conflict:
            return None

    async def _create(self, leases: Leases, former: LeaseRef) -> Lease | None:
        fresh = Lease(Meta(name=former.name, namespace=former.namespace), LeaseSpec())
        try:
            return await leases.create(self._held(fresh))
        except AlreadyExists:
            return None

    def _held(self, lease: Lease) -> Lease:
        now = micro_time(self._clock.wall())
        was = lease.spec.holder_identity
        changed = was != self._holder
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self._holder,
            lease_duration_seconds=lease.spec.lease_duration_seconds or DURATION_S,
            acquire_time=now if changed else lease.spec.acquire_time,
            renew_time=now,
            lease_transitions=(lease.spec.lease_transitions or 0) + bool(changed and was is not None),
        )
        return msgspec.structs.replace(lease, spec=spec)

    def _is_free(self, lease: Lease) -> bool:
        """Released, or seen unchanged by this sharder's own clock for the whole duration."""
        if not lease.spec.holder_identity:
            return True
        mark = (lease.spec.renew_time, lease.spec.holder_identity, lease.spec.lease_transitions)
        now = self._clock.now()
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, now)
        return now - self._seen[1] >= duration_s(lease)

    def _grant(self, granted: bool) -> None:
        if granted != self.is_granted:
            self.is_granted = granted
            log.info("activation changed", granted=granted, lease=self._former.name if self._former else "")
            self._on_change()


def holder_of(ring: str) -> str:
    """Who holds the former Lease once *ring* is activated, whichever sharder acts."""
    return f"ringleader:{ring}"


def duration_s(lease: Lease) -> int:
    """The duration that *lease* names, at least a second; the usual one if it names none."""
    return max(1, lease.spec.lease_duration_seconds or DURATION_S)
