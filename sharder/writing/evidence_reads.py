"""Evidence that a Lease is held, as a question: reads of the Leases, shared by all writes that wait (protocol, 6.3).

A write of a name needs a read that began after the version of its object was known, and that was answered less than
250 ms ago: a server that is slow to answer has slow writes, but has them. While writes are in hand, reads follow each
other closely enough that one is always young; on a slow server they overlap. With nothing to write, nothing is read.
For few writes only their owners' Leases are read, one by one: quicker than a list of all.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.errors import KubeError

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.membership.lease_reads import Evidence
    from sharder.writing.limiter import WriteLimiter

log = structlog.get_logger("sharder")

VALID_S: Final = 0.25
"""Writes begin at most this long after the read of the Leases that allows them was answered."""
OLDEST_S: Final = 10.0
"""A read that began longer ago says nothing, whenever its answer was seen: this process may have been suspended."""
NEXT_S: Final = 0.1
"""The next read begins this long after the answer of the last one, or after its beginning if it is not answered."""
APART_S: Final = 0.02
"""This long after the beginning of the last one, if no write can use that: objects that come one by one share reads."""
FEW_WRITES: Final = 4
"""For so many writes in hand, their owners' Leases are read one by one."""
MOST_READS: Final = 8
"""Under way at the same time: enough for a server that takes a second to answer."""
_GRAIN_S: Final = 0.001
"""Timers are no finer: what is due within this is due."""


class ReadsEvidence(Protocol):
    """`sharder.membership.lease_reads.LeaseReads`, as it is needed here."""

    async def evidence(self) -> Evidence: ...

    async def evidence_of(self, names: Collection[str]) -> Evidence: ...


class PendingWrite(NamedTuple):
    """A write in hand: the owner that it depends on, and how many reads had begun when its version was known."""

    owner: str
    reads_before: int


class _Read(NamedTuple):
    """A read: its number, its beginning, whose Leases it reads (None: all), and its answer (infinite: not yet)."""

    number: int
    began_at: float
    owners: frozenset[str] | None = None
    came_at: float = math.inf

    def is_for(self, write: PendingWrite) -> bool:
        """Whether it is evidence for *write*, as far as its age allows."""
        return self.number > write.reads_before and (self.owners is None or write.owner in self.owners)


class EvidenceReads:
    """Reads of one ring's Leases, as long as writes are in hand; until cancelled."""

    def __init__(
        self,
        leases: ReadsEvidence,
        limiter: WriteLimiter,
        *,
        begin_read: Callable[[], int],
        ring: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """*begin_read* numbers the reads, from 1."""
        self._leases = leases
        self._limiter = limiter
        self._begin_read = begin_read
        self._ring = ring
        self._clock = clock
        self._backoff = ExponentialBackoff(base_s=0.1, max_s=5.0, healthy_s=10.0, rng=rng)
        self._resumes_at = -math.inf
        self._writes: dict[PendingWrite, int] = {}
        """The writes in hand, with their number."""
        self._last = _Read(0, -math.inf, came_at=-math.inf)
        """The read that began last."""
        self._under_way = 0
        self._answered = self._last
        self._evidence: Evidence | None = None
        """The answer to the read that began last of those answered."""
        self._woken = asyncio.Event()
        self._came = asyncio.Event()

    def want(self, write: PendingWrite) -> None:
        """Have evidence read for *write*, and for others that follow it, until `unwant`."""
        if not self._writes:
            self._woken.set()
        self._writes[write] = self._writes.get(write, 0) + 1

    def unwant(self, write: PendingWrite) -> None:
        """*write* is out of hand."""
        self._writes[write] -= 1
        if not self._writes[write]:
            del self._writes[write]

    def current(self, write: PendingWrite) -> Evidence | None:
        """Evidence on which *write* may begin now; None if there is none."""
        now, evidence = self._clock.now(), self._evidence
        if evidence is None or not self._answered.is_for(write):
            return None
        is_valid = now - self._answered.came_at < VALID_S and now - evidence.begun_at < OLDEST_S
        return evidence if is_valid else None

    async def next(self, write: PendingWrite) -> Evidence:
        """`current`, as soon as there is some; `want` comes first."""
        while (evidence := self.current(write)) is None:
            self._woken.set()
            await self._came.wait()
        return evidence

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wait_due()
                self._last = _Read(self._begin_read(), self._clock.now(), self._few_owners())
                self._under_way += 1
                tasks.create_task(self._read(self._last), name="evidence")

    async def _read(self, read: _Read) -> None:
        try:
            evidence = await (
                self._leases.evidence() if read.owners is None else self._leases.evidence_of(read.owners)
            )
        except KubeError as error:
            log.warning("leases could not be read, assignments wait", ring=self._ring, error=str(error))
            if read.began_at >= self._resumes_at:  # one failure for all that were under way
                now = self._clock.now()
                self._resumes_at = now + self._backoff.failed(now)
            return
        finally:
            self._under_way -= 1
            self._woken.set()
        self._backoff.reset()
        read = read._replace(came_at=self._clock.now())
        if self._last.number == read.number:
            self._last = read
        if read.number >= self._answered.number:
            self._answered, self._evidence = read, evidence
            self._came.set()
            self._came = asyncio.Event()

    def _few_owners(self) -> frozenset[str] | None:
        """Owners of all writes in hand; None: all Leases are to be read."""
        if sum(self._writes.values()) > FEW_WRITES:
            return None
        return frozenset(write.owner for write in self._writes)

    async def _wait_due(self) -> None:
        """Return when another read is of use."""
        while (wait_s := self._due_in_s()) is None or wait_s > 0:
            self._woken.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _due_in_s(self) -> float | None:
        """Seconds until the next read is due; None: not before something happens."""
        if not self._writes or self._under_way >= MOST_READS:
            return None
        if (paused_s := self._limiter.paused_s()) > 0:
            return paused_s  # nothing may be written: evidence would only grow old
        left_s = max(self._due_at(), self._resumes_at) - self._clock.now()
        return left_s if left_s > _GRAIN_S else 0.0

    def _due_at(self) -> float:
        last = self._last
        if last.came_at == math.inf:
            return last.began_at + NEXT_S
        is_old = self._clock.now() - last.came_at >= VALID_S
        if is_old or not any(last.is_for(write) for write in self._writes):
            return last.began_at + APART_S
        return last.came_at + NEXT_S
