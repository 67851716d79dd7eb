"""Evidence in time: reads the Leases so that the mover always has a read that is young enough (protocol, 6.3).

A read is evidence for the versions that were known when it began, and for writes that begin within 250 ms of its
answer: a server that is slow to answer has slow writes, but has them. The next one is begun while the writes of the
last one go out, so that they never pause for it; with nothing to write, nothing is read. One at a time. For a few
objects only their owners' Leases are read, one by one: that is quicker. Run by `sharder.writing.mover`.
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
from sharder.unowned.waiting import Lane

if TYPE_CHECKING:
    from sharder.membership.evidence import Evidence
    from sharder.unowned.agenda import Agenda, Covered
    from sharder.writing.duty import Duty
    from sharder.writing.pace import Pace

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


FewOwners = Callable[[], frozenset[str] | None]


class Proof(NamedTuple):
    """One read, and what it is evidence for."""

    evidence: Evidence
    covered: Covered
    came_at: float

    def is_valid(self, now: float) -> bool:
        """Whether a write may still begin on it."""
        return now - self.came_at < VALID_S and now - self.evidence.begun_at < OLDEST_S


class Proofs:
    """The newest `Proof`, kept young while the agenda has something to do; until cancelled.

    *few_owners* tells whose Leases are enough for all that is on the agenda; None: all are to be read.
    """

    def __init__(
        self, duty: Duty, agenda: Agenda, pace: Pace, *, few_owners: FewOwners, rng: random.Random
    ) -> None:
        self._duty = duty
        self._agenda = agenda
        self._pace = pace
        self._few_owners = few_owners
        self._backoff = Backoff(base_s=0.1, max_s=5.0, healthy_s=10.0, rng=rng)
        self._read_s = 0.0
        self._began_at = -math.inf
        self._current: Proof | None = None
        self._is_due_soon = False
        self._stirred = asyncio.Event()
        self._came = asyncio.Event()

    def stir(self) -> None:
        """There is more to do: costs nothing while a read is due soon anyway."""
        if not self._is_due_soon:
            self._stirred.set()

    @property
    def current(self) -> Proof | None:
        """What the next object may be written on; None if nothing on the agenda is covered now."""
        proof = self._current
        if (
            proof is None
            or not proof.is_valid(self._duty.clock.now())
            or not self._agenda.covers(proof.covered)
        ):
            return None
        return proof

    async def next(self) -> Proof:
        """`current`, as soon as there is one."""
        while (proof := self.current) is None:
            self._came.clear()
            self._stirred.set()
            await self._came.wait()
        return proof

    async def run(self) -> None:
        while True:
            await self._wait_wanted()
            self._began_at = began = self._duty.clock.now()
            owners = self._few_owners()
            covered = self._agenda.covered()
            try:
                evidence = await self._read(owners)
            except KubeError as error:
                log.warning("no evidence about leases", ring=self._duty.spec.name, error=str(error))
                await asyncio.sleep(self._backoff.failed(self._duty.clock.now()))
                continue
            self._backoff.reset()
            now = self._duty.clock.now()
            self._read_s = max(now - began, self._read_s * _FORGET)
            self._current = Proof(evidence, covered, now)
            self._came.set()

    async def _read(self, owners: frozenset[str] | None) -> Evidence:
        roster = self._duty.roster
        return await (roster.evidence() if owners is None else roster.evidence_of(owners))

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
        if not len(self._agenda):
            return None
        if (paused_s := self._pace.paused_s()) > 0:
            return paused_s  # nobody may write: evidence would only grow old
        if (proof := self._current) is None or not self._agenda.covers(proof.covered):
            left_s = self._began_at + APART_S - self._duty.clock.now()
            return left_s if left_s > _GRAIN_S else 0.0
        age_s = self._duty.clock.now() - proof.came_at
        left_s = self._renew_after_s(proof) - age_s
        return left_s if left_s > _GRAIN_S else 0.0

    def _renew_after_s(self, proof: Proof) -> float:
        if self._agenda.has(Lane.NEW) and not self._agenda.covers(proof.covered, up_to=Lane.NEW):
            return HURRIED_S
        return max(HURRIED_S, VALID_S - _MARGIN * self._read_s)
