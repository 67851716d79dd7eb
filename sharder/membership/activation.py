"""Taking over from an unsharded controller: its leader-election Lease, held by the sharder (protocol, section 7).

Nothing is assigned until the Lease is ours, and it stays ours over fail-overs of the sharder: every sharder of a ring
holds it under the ring's name. It says that it lasts a day, so that an outage of all sharders does not give it to a
candidate of the former controller while shards work (client-go judges by the Lease since Kubernetes 1.27, pull request
114872; clients that judge by their own settings do not wait). It is given back, with its former duration, when the ring
is deleted and every object has been given up. While another one holds it, every object is given up.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubeio.leases import record
from kubeio.leases.lease import Leases
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.program.failures import failure
from kubeio.protocol import activated_holder

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.ringspec.spec import LeaseRef

log = structlog.get_logger("sharder")

DURATION_S: Final = 15
"""Duration of a former Lease that names none."""
HELD_S: Final = 86_400
"""The duration that the Lease names while the ring holds it."""
FORMER_DURATION: Final = "ringleader.dev/former-duration-seconds"
"""Annotation of the Lease while the ring holds it: the duration that it is given back with."""
READ_EVERY_S: Final = 1.0


class Activation:
    """Permission of a ring to assign. Without *former* it always has it. *on_change* is called when it changes.

    `former_holder`: holder of the Lease in the place of the ring, by the last read; empty if there is none.
    `problem`: why the Lease cannot be read or written, for the ring's status; empty if it can.
    """

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
        self.former_holder = ""
        self.problem = ""
        self._former = former
        self._holder = activated_holder(ring)
        self._leases = Leases(client, former.namespace) if former else None
        self._on_change = on_change
        self._clock = clock
        self._seen: tuple[Lease, float] | None = None  # as another one held it, and since when it is silent
        self._is_over = asyncio.Event()
        self._is_given_back = asyncio.Event()

    async def run(self) -> None:
        """Take and keep the former Lease until `give_back`, and release it; returns at once if there is none.

        No other task writes the Lease, so no request for it is under way when it is released.
        """
        if self._former is None or self._leases is None:
            return
        while not self._is_over.is_set():
            pause_s = await self._keep(self._leases, self._former)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._is_over.wait()
        await self._release(self._leases, self._former)
        self._note(False, "")
        self._is_given_back.set()

    async def give_back(self) -> None:
        """Have `run` release the Lease, so that the former controller may lead again; returns when it has."""
        if self._former is not None:
            self._is_over.set()
            await self._is_given_back.wait()

    async def _keep(self, leases: Leases, former: LeaseRef) -> float:
        """Take or renew the Lease if that is possible, and note what came of it; seconds until the next time."""
        try:
            lease = await self._step(leases, former)
        except KubeError as error:
            self._failed(former, error)
            return READ_EVERY_S
        if lease is None:
            problem = f"namespace {former.namespace} of the former controller's Lease does not exist"
            self._note(True, "", problem=problem)
            return DURATION_S / 3
        if lease.spec.holder_identity != self._holder:
            self._note(False, lease.spec.holder_identity or "")
            return READ_EVERY_S
        self._note(True, "")
        return former_duration_s(lease) / 3

    async def _release(self, leases: Leases, former: LeaseRef) -> None:
        """Release the Lease if the ring holds it, however often that has to be tried."""
        while True:
            try:
                lease = await leases.get(former.name)
                if lease.spec.holder_identity == self._holder:
                    spec = msgspec.structs.replace(
                        lease.spec, lease_duration_seconds=former_duration_s(lease)
                    )
                    lease.metadata.annotations.pop(FORMER_DURATION, None)
                    await leases.swap(msgspec.structs.replace(lease, spec=record.released(spec)))
            except NotFound:
                return  # nothing is held, not even if the namespace is there no more
            except KubeError as error:
                self._failed(former, error)
                await asyncio.sleep(READ_EVERY_S)
            else:
                return

    async def _step(self, leases: Leases, former: LeaseRef) -> Lease | None:
        """Read the Lease once, and write it if it is ours or free. Raises KubeError.

        The Lease as it is now, or was; None if its namespace does not exist: no process can hold it.
        """
        try:
            lease = await leases.get(former.name)
        except NotFound:
            if self._seen is not None and not self._has_ended(*self._seen):
                return self._seen[0]  # deleted by hand: its holder may not know yet
            return await self._create(leases, former)
        if not self._is_free(lease):
            return lease
        try:
            return await leases.swap(self._held(lease, former=lease.spec))
        except Conflict:
            return await leases.get(former.name)

    async def _create(self, leases: Leases, former: LeaseRef) -> Lease | None:
        fresh = Lease(Meta(name=former.name, namespace=former.namespace), LeaseSpec())
        try:
            return await leases.create(self._held(fresh, former=None))
        except AlreadyExists:
            return await leases.get(former.name)
        except NotFound as error:
            if f'namespaces "{former.namespace}" not found' not in error.message:
                raise
            return None

    def _held(self, lease: Lease, *, former: LeaseSpec | None) -> Lease:
        """*lease* held by the ring; *former* is None for a Lease that is new."""
        wall = self._clock.wall()
        changed = lease.spec.holder_identity != self._holder
        annotations = dict(lease.metadata.annotations)
        if changed or FORMER_DURATION not in annotations:
            annotations[FORMER_DURATION] = str(duration_s(lease))
        mine = lease.spec if not changed else record.claimed(former, self._holder, wall=wall)
        spec = msgspec.structs.replace(record.renewed(mine, wall=wall), lease_duration_seconds=HELD_S)
        metadata = msgspec.structs.replace(lease.metadata, annotations=annotations)
        return msgspec.structs.replace(lease, metadata=metadata, spec=spec)

    def _is_free(self, lease: Lease) -> bool:
        """Ours, released, or seen unchanged by this sharder's own clock for the whole duration."""
        if lease.spec.holder_identity in (None, "", self._holder):
            self._seen = None  # who holds it next is given the whole duration
            return True
        now = self._clock.now()
        if self._seen is None or record.heartbeat_of(self._seen[0].spec) != record.heartbeat_of(lease.spec):
            self._seen = (lease, now)
        return now - self._seen[1] >= duration_s(lease)

    def _has_ended(self, lease: Lease, seen_at: float) -> bool:
        """Whether the holder of a deleted *lease*, last seen at *seen_at*, must know that. A ring makes it again."""
        of_ring = (lease.spec.holder_identity or "").startswith(activated_holder(""))
        return self._clock.now() - seen_at >= (former_duration_s(lease) if of_ring else duration_s(lease))

    def _failed(self, former: LeaseRef, error: KubeError) -> None:
        where = f"{former.namespace}/{former.name}"
        self.problem = f"the former controller's Lease {where} is out of reach: {failure(error).message}"
        log.warning("former lease could not be read or written", lease=former.name, error=str(error))

    def _note(self, granted: bool, former_holder: str, problem: str = "") -> None:
        self.problem = problem
        if (granted, former_holder) == (self.is_granted, self.former_holder):
            return
        is_lost = self.is_granted and bool(former_holder)
        self.is_granted, self.former_holder = granted, former_holder
        log.log(
            logging.ERROR if is_lost else logging.INFO,
            "former lease lost: every object is given up" if is_lost else "activation changed",
            granted=granted,
            holder=former_holder,
            lease=self._former.name if self._former else "",
        )
        self._on_change()


def former_duration_s(lease: Lease) -> int:
    """The duration that a Lease which the ring holds had before; the usual one if its annotation names none."""
    written = lease.metadata.annotations.get(FORMER_DURATION, "")
    is_number = len(written) <= len(str(HELD_S)) and written.isascii() and written.isdecimal()
    return max(1, int(written)) if is_number else DURATION_S


def duration_s(lease: Lease) -> int:
    """The duration that *lease* names, at least a second; the usual one if it names none."""
    return max(1, lease.spec.lease_duration_seconds or DURATION_S)
