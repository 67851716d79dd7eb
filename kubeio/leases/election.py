"""Leader election over one Lease, as a scope: `async with leadership(...)` is entered by one at a time.

Owns the rule when to take the Lease and when to give it up; does not know what the leader does.

No two machines' clocks are ever compared: a candidate takes the Lease when *it* has seen it unchanged for the
whole lease duration on its own clock; the leader gives up 2/3 of the duration after it sent the last renewal
that succeeded. The difference of the two is the time that a cancelled body has to end. Economy, not safety:
a body that does not end, or a process that is suspended in mid-write, is not stopped by this (fence writes).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Never

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge

from kubeio.clock import Clock
from kubeio.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    HistoryWentBack,
    InputError,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
)
from kubeio.leases.lease import Leases
from kubeio.leases.record import claimed, heartbeat_of, released, renewed
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.versions import is_older

_log = structlog.get_logger("kubeio")
_JITTER: Final = 0.2
_TICK_S: Final = 0.5
"""Longest sleep: a machine that was suspended notices so soon. Its timers stood still, its clock did not."""
_RELEASE_S: Final = 5.0
_FINAL: Final = (BadRequest, Forbidden, InputError, Invalid, NotFound, Unauthorized)
"""A first attempt that fails like this will fail again (no right, no such namespace): it is raised."""


class LeadershipLost(KubeError):
    """The Lease could not be kept: everything done under it must stop."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"lost the leadership of {name}: {reason}")


def leader_gauge(registry: CollectorRegistry) -> Gauge:
    """`leader_election_master_status{name}`: 1 while this process leads. Build it once per registry."""
    return Gauge(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master.",
        ["name"],
        registry=registry,
    )


class Leadership:
    """The leadership that the body of `leadership` holds.

    `is_held` is a cheap last check before a write. The body is cancelled on loss even if it never checks.
    """

    def __init__(self, name: str, identity: str, *, clock: Clock, renew_deadline_s: float) -> None:
        self.name: Final = name
        self.identity: Final = identity
        self.clock: Final = clock
        self.renew_deadline_s: Final = renew_deadline_s
        self.renewed_at = -math.inf

    def remaining_s(self) -> float:
        """Seconds until the leader must give up, unless it renews; negative afterwards."""
        return self.renewed_at + self.renew_deadline_s - self.clock.now()

    def is_held(self) -> bool:
        return self.remaining_s() > 0


@asynccontextmanager
async def leadership(
    leases: Leases,
    *,
    name: str,
    identity: str,
    lease_duration_s: float = 15.0,
    look_period_s: float | None = None,
    clock: Clock,
    rng: random.Random,
    on_waiting: Callable[[str], object] | None = None,
    status: Gauge | None = None,
) -> AsyncIterator[Leadership]:
    """Wait until this process leads, run the body under the Lease, release it when the body has ended.

    *identity* must be unique among the processes that run at one time; a Lease found under it from an earlier
    process is waited for like any other. A leader renews every 2/15 of the duration, and gives up when no renewal
    succeeded for 2/3 of it: client-go's 15, 10 and 2 s. A candidate looks as often, or every *look_period_s*,
    one GET each; a released Lease may stay unclaimed for so long. *on_waiting* gets the leader's name (empty: none
    yet) whenever it changes.

    Raises: LeadershipLost and HistoryWentBack, in the body as a cancellation, at the end of the scope as themselves;
    what the first attempt fails with if it can never succeed (Forbidden, no such namespace).
    """
    _check(name, identity, lease_duration_s)
    candidate = _Candidate(
        leases,
        Leadership(name, identity, clock=clock, renew_deadline_s=lease_duration_s * 2 / 3),
        lease_duration_s=lease_duration_s,
        look_period_s=look_period_s,
        rng=rng,
        on_waiting=on_waiting,
    )
    gauge = status.labels(name) if status is not None else None
    if gauge is not None:
        gauge.set(0)
    body_error: BaseException | None = None
    try:
        await candidate.wait_until_leader()
        _log.info("leadership gained", lease=name, identity=identity)
        if gauge is not None:
            gauge.set(1)
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(candidate.keep(), name=f"lease {name}")
            try:
                yield candidate.held
            except BaseException as error:
                body_error = error
                raise
            finally:
                keeping.cancel()
    except BaseExceptionGroup as errors:
        if candidate.loss is not None:
            raise candidate.loss from body_error
        raise (body_error or errors) from None
    finally:
        if gauge is not None:
            gauge.set(0)
        await candidate.release()


class _Candidate:
    """One process's part in the election: waits, keeps, releases."""

    def __init__(
        self,
        leases: Leases,
        held: Leadership,
        *,
        lease_duration_s: float,
        look_period_s: float | None,
        rng: random.Random,
        on_waiting: Callable[[str], object] | None,
    ) -> None:
        self.held = held
        self._leases = leases
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = held.renew_deadline_s
        self._retry_period_s = lease_duration_s * 2 / 15
        self._look_period_s = self._retry_period_s if look_period_s is None else look_period_s
        self._clock = held.clock
        self._rng = rng
        self._on_waiting = on_waiting
        self._reported: str | None = None
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0
        self._tried_at = 0.0
        self._claim: LeaseSpec | None = None  # the last one sent, whether or not an answer came
        self._lease: Lease | None = None  # what we hold, as last answered
        self._version = ""
        """The newest one of the Lease that was seen."""
        self.loss: LeadershipLost | HistoryWentBack | None = None

    # -- waiting

    async def wait_until_leader(self) -> None:
        is_first = True
        while True:
            asked_s = 0.0
            try:
                async with asyncio.timeout(self._renew_deadline_s):
                    if await self._try_to_take():
                        return
            except (AlreadyExists, Conflict):
                pass  # another candidate was faster; the next read shows its name
            except (KubeError, TimeoutError) as error:
                if is_first and isinstance(error, _FINAL):
                    self._claim = None  # refused for good: there is nothing to release
                    raise
                asked_s = (error.retry_after_s if isinstance(error, ApiError) else None) or 0.0
                _log.warning("election attempt failed", lease=self.held.name, error=str(error) or "timed out")
            is_first = False
            await asyncio.sleep(max(self._pause_before_next_look_s(), asked_s))

    async def _try_to_take(self) -> bool:
        """Read the Lease and take it if it is free. True: it is ours."""
        try:
            lease = self._newest(await self._leases.get(self.held.name))
        except NotFound:
            if self._seen is not None and not self._is_silent():
                return False  # deleted by hand: its holder may not know yet
            lease = Lease(Meta(name=self.held.name, namespace=self._leases.namespace))
        else:
            self._see(lease.spec)
            if not self._is_mine(lease) and lease.spec.holder_identity and not self._is_silent():
                self._report_holder(lease.spec.holder_identity)
                return False
        sent_at = self._clock.now()
        wanted = self._renewed(lease) if self._is_mine(lease) else self._claimed(lease)
        try:
            if lease.metadata.resource_version:
                self._lease = self._newest(await self._leases.swap(wanted))
            else:
                self._lease = self._newest(await self._leases.create(wanted))
        except (AlreadyExists, Conflict):
            self._claim = None  # it was not written; without an answer it may have been
            raise
        self.held.renewed_at = self._tried_at = sent_at
        return self.held.is_held()  # else the answer took too long: look again

    def _newest(self, lease: Lease) -> Lease:
        """*lease*, which was answered now. Raises HistoryWentBack if a newer version of it was seen."""
        version = lease.metadata.resource_version
        if is_older(version, self._version):
            self.loss = HistoryWentBack(f"lease {self.held.name}", version=version, seen=self._version)
            raise self.loss
        self._version = version
        return lease

    def _see(self, spec: LeaseSpec) -> None:
        """Note when the Lease last changed, as seen from here."""
        if self._seen is None or heartbeat_of(spec) != heartbeat_of(self._seen):
            self._seen_at = self._clock.now()
        self._seen = spec

    def _silent_in_s(self) -> float:
        """Seconds until what was seen last has been unchanged for a whole lease duration, ours or its holder's."""
        duration_s = max(self._lease_duration_s, (self._seen and self._seen.lease_duration_seconds) or 0)
        return self._seen_at + duration_s - self._clock.now()

    def _is_silent(self) -> bool:
        return self._silent_in_s() <= 0

    def _report_holder(self, holder: str) -> None:
        if self._on_waiting is not None and holder != self._reported:
            self._reported = holder
            self._on_waiting(holder)

    def _pause_before_next_look_s(self) -> float:
        """A look period, or less if the Lease falls silent sooner."""
        jitter_s = _JITTER * self._rng.random() * self._look_period_s
        silent_in_s = self._silent_in_s() if self._seen is not None else 0.0
        if 0 < silent_in_s < self._look_period_s:
            return silent_in_s + jitter_s
        return self._look_period_s + jitter_s

    # -- leading

    async def keep(self) -> Never:
        """Renew until cancelled. Raises LeadershipLost."""
        while True:
            # counted from the last attempt's start: on a slow server the next one must not come later still
            pause_s = self._retry_period_s * (1 + _JITTER * self._rng.random())
            due_in_s = self._tried_at + pause_s - self._clock.now()
            await self._sleep(min(due_in_s, self.held.remaining_s() + _TICK_S / 10))
            if not self.held.is_held():
                self._lose(f"not renewed for {self._renew_deadline_s:g} s")
            self._tried_at = self._clock.now()
            try:
                # half of what is left: a request that hangs leaves time for another
                async with asyncio.timeout(self.held.remaining_s() / 2):
                    await self._renew()
            except LeadershipLost:
                raise
            except (KubeError, TimeoutError) as error:
                _log.warning("lease not renewed", lease=self.held.name, error=str(error) or "timed out")

    async def _sleep(self, seconds: float) -> None:
        wake_at = self._clock.now() + seconds
        while (left_s := wake_at - self._clock.now()) > 0:  # noqa: ASYNC110  # a clock that jumps is no event
            await asyncio.sleep(max(min(left_s, _TICK_S), 0.001))

    async def _renew(self) -> None:
        sent_at = self._clock.now()
        try:
            lease = self._newest(
                await self._leases.swap(self._renewed(self._lease or await self._read_own()))
            )
        except Conflict:
            current = await self._read_own()
            sent_at = self._clock.now()
            lease = self._newest(await self._leases.swap(self._renewed(current)))
        if not self.held.is_held():
            self._lose("the answer to the renewal came too late")
        self._lease = lease
        self.held.renewed_at = sent_at

    async def _read_own(self) -> Lease:
        """The Lease after another write: an earlier renewal of ours whose answer was lost, or a taker."""
        try:
            current = self._newest(await self._leases.get(self.held.name))
        except NotFound:
            self._lose("the Lease was deleted")
        if not self._is_mine(current):
            self._lose(f"the Lease is held by {current.spec.holder_identity or 'no process'}")
        self._lease = current
        return current

    def _lose(self, reason: str) -> Never:
        self.loss = LeadershipLost(self.held.name, reason)
        _log.warning("leadership lost", lease=self.held.name, reason=reason)
        raise self.loss

    async def release(self) -> None:
        """Give the Lease back, so that the next one need not wait. A lost one is left alone. Best effort."""
        if self.loss is not None or self._claim is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_S):
                try:
                    await self._leases.swap(_released(self._lease or await self._read_own()))
                except Conflict:
                    await self._leases.swap(_released(await self._read_own()))
        except (KubeError, TimeoutError) as error:
            _log.warning("lease not released", lease=self.held.name, error=str(error) or "timed out")
        else:
            _log.info("leadership released", lease=self.held.name)

    # -- the Lease's fields

    def _is_mine(self, lease: Lease) -> bool:
        """Whether the Lease still says what this very term wrote; another process of the same name is not this one."""
        claim, spec = self._claim, lease.spec
        return (
            claim is not None
            and spec.holder_identity == claim.holder_identity
            and spec.acquire_time == claim.acquire_time
            and spec.lease_transitions == claim.lease_transitions
        )

    def _claimed(self, lease: Lease) -> Lease:
        self._claim = claimed(
            lease.spec if lease.metadata.resource_version else None,
            self.held.identity,
            wall=self._clock.wall(),
            duration_s=math.ceil(self._lease_duration_s),
        )
        return msgspec.structs.replace(lease, spec=self._claim)

    def _renewed(self, lease: Lease) -> Lease:
        return msgspec.structs.replace(lease, spec=renewed(lease.spec, wall=self._clock.wall()))


def _released(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, spec=released(lease.spec))


def _check(name: str, identity: str, lease_duration_s: float) -> None:
    if not name or not identity:
        field = "name" if not name else "identity"
        raise InputError(f"election {field}", "", "is empty", "name the Lease and this process")
    if not lease_duration_s > 0:
        raise InputError("lease duration", lease_duration_s, "is too short", "use 1 or more, such as 15")
