"""Keeps the shard's Lease, or ends the process: protocol 5.1.

`Heartbeat` is the logic, on whatever loop it is given; `HeartbeatThread` gives it a thread, an event loop and a
connection of its own, so that a busy main loop does not delay it. Does not know what runs: `LeaseValidity` counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Never, Protocol

import msgspec
import structlog

from kubeio.access.cluster import Cluster
from kubeio.clock import Clock
from kubeio.errors import Conflict, KubeError, NotFound, first_error
from kubeio.leases import record
from kubeio.leases.lease import Leases
from kubeio.models import Lease
from kubeio.program.host import Host
from kubeio.program.logs import AT_EXIT_S, drain, write_text
from kubeio.program.stacks import stacks_of_threads
from kubeio.shard import lease_acquisition
from kubeio.shard.errors import LeaseLost, Stalled
from kubeio.shard.exit_timer import ExitTimer
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import StallDetector

log = structlog.get_logger("kubeio")

LOST_LEASE_EXIT = 3
STALLED_EXIT = 1
_REMEMBERED = 1000
"""Renewals without an answer: attempts are a fifteenth of a duration apart, and none arrives after a minute."""
_RETRY_S = 0.25
"""Between two attempts at least: a fleet with short Leases repeats them against a server that refuses everything."""


LeaseAnnotations = Callable[[], Mapping[str, str]]
"""Annotations of the Lease, as they are at each renewal."""


class LeaseSwaps(Protocol):
    """The part of `kubeio.leases.lease.Leases` that a heartbeat needs."""

    async def get(self, name: str) -> Lease: ...
    async def swap(self, lease: Lease) -> Lease: ...


class Heartbeat:
    """Renews *lease* every third of its duration and watches what must not outlive it."""

    def __init__(
        self,
        leases: LeaseSwaps,
        lease: Lease,
        *,
        validity: LeaseValidity,
        progress: StallDetector,
        timer: ExitTimer,
        clock: Clock,
        rng: random.Random,
        on_phase: Callable[[Phase], None],
    ) -> None:
        self._leases = leases
        self.lease = lease
        self._name = lease.metadata.name
        self._validity = validity
        self._progress = progress
        self._timer = timer
        self._clock = clock
        self._rng = rng
        self._on_phase = on_phase
        self._phase = Phase.HELD
        self._is_failing = False
        self._marks: LeaseAnnotations = dict
        self._announced = asyncio.Event()
        self._sent = {lease.spec.renew_time: validity.sent_at}
        """The last success and the renewals after it: renewTime, and when it was sent."""

    async def run(self) -> Never:
        """Renew and watch until cancelled. Raises, inside a group: LeaseLost, Stalled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_for_ever(), name="lease renewal")
            group.create_task(self._watch_for_ever(), name="lease watch")
        raise AssertionError("the loops of a heartbeat do not return")

    def announce(self, marks: LeaseAnnotations) -> None:
        """Renew at once; from then on each renewal writes the annotations that *marks* returns."""
        self._marks = marks
        self._announced.set()

    async def _renew_for_ever(self) -> Never:
        delay_s = self._validity.renew_at - self._clock.now()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, delay_s)):
                    await self._announced.wait()
            self._announced.clear()
            delay_s = await self._renew()

    async def _renew(self) -> float:
        """Renew once; the delay until the next attempt. Never while work has outlived the Lease."""
        self._watch()
        sent_at = self._clock.now()
        wanted = record.renewed(self.lease.spec, wall=self._clock.wall())
        self._note_sent(wanted.renew_time, sent_at)
        marked = {**self.lease.metadata.annotations, **self._marks()}
        meta = msgspec.structs.replace(self.lease.metadata, annotations=marked)
        renewed = msgspec.structs.replace(self.lease, metadata=meta, spec=wanted)
        try:
            async with asyncio.timeout(max(self._validity.duration_s / 3, 0.2)):
                self.lease = await self._leases.swap(renewed)
        except Conflict:
            return await self._read_again()
        except NotFound:
            raise LeaseLost(self._name, "it is gone") from None
        except (KubeError, TimeoutError) as error:
            if not self._is_failing:  # the first of a spell: the rest shows in the phases
                log.warning("lease renewal failed", shard=self._name, error=str(error) or "timed out")
            self._is_failing = True
            return self._retry_s()
        return self._renewed(wanted.renew_time, sent_at)

    def _note_sent(self, renew_time: str | None, sent_at: float) -> None:
        self._sent.setdefault(renew_time, sent_at)
        if len(self._sent) > _REMEMBERED:  # the success stays: after a long outage the Lease shows that one
            del self._sent[next(islice(self._sent, 1, None))]

    def _renewed(self, renew_time: str | None, sent_at: float) -> float:
        """The renewal that was sent then is in the Lease; the delay until the next one."""
        # An outage ends for all replicas at once: their next renewals lie anywhere within a third of the duration.
        share = self._rng.random() if self._is_failing else 1.0
        self._is_failing = False
        self._sent = {renew_time: sent_at}
        self._validity.renewed(sent_at=sent_at)
        self._timer.rearm()
        return sent_at + share * (self._validity.renew_at - sent_at) - self._clock.now()

    async def _read_again(self) -> float:
        """Read the Lease that was written since: by another process, or by a renewal whose answer was lost.

        Such a renewal counts, from when it was sent. Labels may change; holder and duration may not.
        A renewal that this process did not send is another process's with the same memory: a copy of a virtual machine
        that was restored from a snapshot, or of the process itself. No fence distinguishes the two: one has to end.
        """
        try:
            async with asyncio.timeout(max(self._validity.duration_s / 3, 0.2)):
                found = await self._leases.get(self._name)
        except NotFound:
            raise LeaseLost(self._name, "it is gone") from None
        except (KubeError, TimeoutError):
            return self._retry_s()
        if found.spec.holder_identity != self._name:
            raise LeaseLost(self._name, f"it is held by {found.spec.holder_identity or 'no shard'!r}")
        if found.spec.lease_duration_seconds != self.lease.spec.lease_duration_seconds:
            raise LeaseLost(self._name, "its duration was edited")
        if not self.wrote(found):
            raise LeaseLost(self._name, "another process renews it")
        self.lease = found
        renew_time = found.spec.renew_time
        delay_s = self._renewed(renew_time, self._sent[renew_time])
        return delay_s if self._marks().keys() <= found.metadata.annotations.keys() else 0.0

    def wrote(self, found: Lease) -> bool:
        """Whether the last renewal that *found* shows is one of this process's own."""
        return found.spec.renew_time in self._sent

    def _retry_s(self) -> float:
        return max(self._validity.duration_s / 15, _RETRY_S) * self._rng.uniform(0.8, 1.2)

    async def _watch_for_ever(self) -> Never:
        while True:
            self._watch()
            self._timer.rearm()
            await asyncio.sleep(min(max(self._validity.duration_s / 30, 0.02), 0.5))

    def _watch(self) -> None:
        phase = self._validity.phase(self._clock.now())
        if phase is not self._phase:
            self._phase = phase
            self._on_phase(phase)
        if phase is Phase.LAPSED and self._validity.running > 0:
            raise LeaseLost(
                self._name, f"it is {self._validity.age_s(self._clock.now()):.1f} s old and work still runs"
            )
        if stalled := self._progress.check():
            raise Stalled(stalled[0], for_s=stalled[1])


class HeartbeatThread:
    """A `Heartbeat` on a thread of its own. It ends the process when the Lease is lost or work stands still."""

    def __init__(
        self,
        host: Host,
        cluster: Cluster,
        lease: Lease,
        *,
        validity: LeaseValidity,
        progress: StallDetector,
        timer: ExitTimer,
        on_phase: Callable[[Phase], None],
    ) -> None:
        self._host = host
        self._cluster = cluster
        self._lease = lease
        self._validity = validity
        self._progress = progress
        self._timer = timer
        self._on_phase = on_phase
        self._thread = host.loop_thread(self._serve, name="heartbeat", on_error=self._fail)
        self._stop = asyncio.Event()
        self._heartbeat: Heartbeat | None = None
        self._release = False
        self._without = ""

    def start(self) -> None:
        """Begin to renew; returns once the thread runs."""
        self._thread.start()

    def announce(self, marks: LeaseAnnotations) -> None:
        """Renew at once; each renewal from then on calls *marks*, on the heartbeat's thread, for its annotations."""
        if self._heartbeat is not None:
            self._thread.call(self._heartbeat.announce, marks)

    async def stop(self, *, release: bool, without: str = "") -> None:
        """End the renewals and, if asked, release the Lease; returns once that is answered or timed out.

        *without*: an annotation that the released Lease does not bear.
        """
        self._release, self._without = release, without
        self._thread.call(self._stop.set)
        await self._thread.join(self._validity.duration_s)

    def _fail(self, error: BaseException) -> None:
        self._end(first_error(error))

    def _end(self, why: BaseException) -> None:
        """End the process, whatever happens to the log on the way."""
        code = LOST_LEASE_EXIT if isinstance(why, LeaseLost) else STALLED_EXIT
        try:
            log.error(
                "process ends",
                shard=self._lease.metadata.name,
                reason=str(why),
                exit_code=code,
                exc_info=None if isinstance(why, LeaseLost | Stalled) else why,
            )
            if isinstance(why, Stalled):
                write_text(f"{stacks_of_threads()}\n")
            drain(within_s=min(AT_EXIT_S, self._validity.duration_s / 4))
        finally:
            self._host.end_process(code)

    async def _serve(self) -> None:
        async with self._host.client(
            self._cluster, max_connections=1, user_agent="ringleader-heartbeat"
        ) as client:
            leases = Leases(client, self._lease.metadata.namespace)
            heartbeat = Heartbeat(
                leases,
                self._lease,
                validity=self._validity,
                progress=self._progress,
                timer=self._timer,
                clock=self._host.clock,
                rng=self._host.rng,
                on_phase=self._on_phase,
            )
            self._heartbeat = heartbeat
            await _until(self._stop, heartbeat)
            self._timer.close()
            if self._release:
                await self._release_lease(leases, heartbeat)

    async def _release_lease(self, leases: Leases, heartbeat: Heartbeat) -> None:
        """Release the Lease; one that was written meanwhile is read once more, and only released if still ours."""
        lease, name = heartbeat.lease, heartbeat.lease.metadata.name
        try:
            async with asyncio.timeout(self._validity.duration_s):
                try:
                    await lease_acquisition.release(leases, lease, without=self._without)
                except Conflict:
                    found = await leases.get(name)
                    if found.spec.holder_identity == name and heartbeat.wrote(found):
                        await lease_acquisition.release(leases, found, without=self._without)
        except (KubeError, TimeoutError) as error:
            log.warning("lease not released", shard=name, error=str(error) or "timed out")
            return
        log.info("lease released", shard=name)


async def _until(stop: asyncio.Event, heartbeat: Heartbeat) -> None:
    """Run *heartbeat* until *stop*."""
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(heartbeat.run(), name="heartbeat")
        await stop.wait()
        beating.cancel()
