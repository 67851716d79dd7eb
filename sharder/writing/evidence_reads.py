"""Evidence in time: reads the Leases so that the assigner always has a read that is young enough (protocol, 6.3).

A read is evidence for the versions that were known when it began, and for writes that begin within 250 ms of its
answer: a server that is slow to answer has slow writes, but has them. The next read begins while the writes of the last
one go out, and on a slow server while the last one is still unanswered, so that writes never pause for it. With nothing
to write, nothing is read. For a few objects only their owners' Leases are read, one by one: that is quicker.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kubeio.backoff import Backoff
from kubeio.errors import KubeError
from sharder.unowned.pending import Lane

if TYPE_CHECKING:
    from sharder.membership.evidence import Evidence
    from sharder.unowned.assignment_queue import AssignmentQueue, Covered
    from sharder.writing.limiter import WriteLimiter
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

VALID_S: Final = 0.25
"""Writes begin at most this long after the read of the Leases that allows them was answered."""
OLDEST_S: Final = 10.0
"""A read that began longer ago says nothing, whenever its answer was seen: this process may have been suspended."""
HURRIED_S: Final = 0.1
"""With new objects that no read covers yet, the next one begins after this long already."""
APART_S: Final = 0.02
"""Reads begin no closer together: objects that come one after the other share them."""
_GRAIN_S: Final = 0.001
"""Timers are no finer: what is due within this is due."""
_MARGIN: Final = 1.5
"""The next read begins so many times the longest of the last reads before the last one is void."""
_FORGET: Final = 0.9
_MOST_READS: Final = 8
"""Under way at the same time: enough for a server that takes a second or two to answer."""


FewOwners = Callable[[], frozenset[str] | None]


class EvidenceRead(NamedTuple):
    """One read, and what it is evidence for."""

    evidence: Evidence
    covered: Covered
    came_at: float

    def is_valid(self, now: float) -> bool:
        """Whether a write may still begin on it."""
        return now - self.came_at < VALID_S and now - self.evidence.begun_at < OLDEST_S


class _Read(NamedTuple):
    """A read under way: when it began, what it will cover, and whose Leases it reads (None: all)."""

    began_at: float
    covered: Covered
    owners: frozenset[str] | None


class EvidenceReads:
    """The newest `EvidenceRead`, kept young while the agenda has something to do; until cancelled.

    *few_owners* tells whose Leases are enough for all that is on the agenda; None: all are to be read.
    """

    def __init__(
        self,
        context: RingContext,
        queue: AssignmentQueue,
        limiter: WriteLimiter,
        *,
        few_owners: FewOwners,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._queue = queue
        self._limiter = limiter
        self._few_owners = few_owners
        self._backoff = Backoff(base_s=0.1, max_s=5.0, healthy_s=10.0, rng=rng)
        self._read_s = 0.0
        self._began_at = -math.inf
        self._under_way: list[_Read] = []
        self._resumes_at = -math.inf
        self._current: EvidenceRead | None = None
        self._is_due_soon = False
        self._stirred = asyncio.Event()
        self._came = asyncio.Event()

    def wake(self) -> None:
        """There is more to do: costs nothing while a read is due soon anyway."""
        if not self._is_due_soon:
            self._stirred.set()

    def current(self, lanes: tuple[Lane, ...]) -> EvidenceRead | None:
        """Evidence for a write of the next object of *lanes*; None if no valid read covers an object in them."""
        proof = self._current
        if (
            proof is None
            or not proof.is_valid(self._context.clock.now())
            or not self._queue.covers(proof.covered, lanes)
        ):
            return None
        return proof

    async def next(self, lanes: tuple[Lane, ...]) -> EvidenceRead:
        """`current`, as soon as there is one."""
        while (proof := self.current(lanes)) is None:
            self._came.clear()
            self._stirred.set()
            await self._came.wait()
        return proof

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wait_wanted()
                self._began_at = self._context.clock.now()
                read = _Read(self._began_at, self._queue.covered(), self._few_owners())
                self._under_way.append(read)
                tasks.create_task(self._carry_out(read), name="evidence")

    async def _carry_out(self, read: _Read) -> None:
        membership = self._context.membership
        try:
            evidence = await (
                membership.evidence() if read.owners is None else membership.evidence_of(read.owners)
            )
        except KubeError as error:
            log.warning("no evidence about leases", ring=self._context.spec.name, error=str(error))
            if read.began_at >= self._resumes_at:  # one failure for all that were under way
                now = self._context.clock.now()
                self._resumes_at = now + self._backoff.failed(now)
            return
        finally:
            self._under_way.remove(read)
            self._stirred.set()
        self._backoff.reset()
        now = self._context.clock.now()
        self._read_s = max(now - read.began_at, self._read_s * _FORGET)
        if self._current is None or self._current.evidence.begun_at <= evidence.begun_at:
            self._current = EvidenceRead(evidence, read.covered, now)
            self._came.set()

    async def _wait_wanted(self) -> None:
        """Return when another read would be of use."""
        while (wait_s := self._wanted_in_s()) is None or wait_s > 0:
            self._stirred.clear()
            self._is_due_soon = wait_s is not None and wait_s <= HURRIED_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._stirred.wait()
            except TimeoutError:
                pass
        self._is_due_soon = True

    def _wanted_in_s(self) -> float | None:
        """None: not before something stirs."""
        if not len(self._queue) or len(self._under_way) >= _MOST_READS:
            return None
        if (paused_s := self._limiter.paused_s()) > 0:
            return paused_s  # nobody may write: evidence would only grow old
        left_s = max(self._wanted_at(), self._resumes_at) - self._context.clock.now()
        return left_s if left_s > _GRAIN_S else 0.0

    def _wanted_at(self) -> float:
        if self._under_way:
            covered = self._under_way[-1].covered
            apart_s = (
                VALID_S - (_MARGIN - 1) * self._read_s
            )  # it will be valid for that long when the next one comes
            return self._began_at + (HURRIED_S if self._lacks(covered) else max(HURRIED_S, apart_s))
        if (proof := self._current) is None or not self._queue.covers(proof.covered):
            return self._began_at + APART_S
        lasts_s = VALID_S - _MARGIN * self._read_s
        return proof.came_at + (HURRIED_S if self._lacks(proof.covered) else max(HURRIED_S, lasts_s))

    def _lacks(self, covered: Covered) -> bool:
        """Whether something waits for another read than the one that covers *covered*: a new object, or everything."""
        is_new = self._queue.count(Lane.NEW) > 0 and not self._queue.covers(covered, (Lane.NEW,))
        return is_new or not self._queue.covers(covered)
