"""On which read of the Leases a write may begin (the protocol's 6.3), against a plain model. On virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from contextlib import ExitStack

import pytest

from sharder.membership.lease_reads import Evidence
from sharder.writing.evidence_reads import OLDEST_S, VALID_S, EvidenceReads, PendingWrite
from sharder.writing.limiter import WriteLimiter
from tests.kubeio.virtual import LoopClock

pytestmark = pytest.mark.looptime


class Leases:
    """Leases whose reads take as long as chance has it; notes when each read began, and for whom."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.begun: list[tuple[float, frozenset[str] | None]] = []

    def begin_read(self) -> int:
        return len(self.begun) + 1

    async def evidence(self) -> Evidence:
        return await self._read(None)

    async def evidence_of(self, names: Collection[str]) -> Evidence:
        return await self._read(frozenset(names))

    async def _read(self, names: frozenset[str] | None) -> Evidence:
        began_at = asyncio.get_running_loop().time()
        self.begun.append((began_at, names))
        await asyncio.sleep(self.rng.choice((0.001, 0.02, 0.3, 1.5)))
        return Evidence(names or frozenset("abcdef"), began_at)


@pytest.mark.parametrize("seed", range(20))
async def test_a_write_begins_on_a_read_that_began_after_its_version_and_was_answered_just_now(
    seed: int,
) -> None:
    rng, clock = random.Random(seed), LoopClock()
    leases = Leases(rng)
    reads = EvidenceReads(
        leases,
        WriteLimiter(clock=clock, rng=rng),
        begin_read=leases.begin_read,
        ring="r",
        clock=clock,
        rng=rng,
    )
    ended = 0

    async def one() -> None:
        nonlocal ended
        known_before = len(leases.begun)
        write = PendingWrite(rng.choice("abcdef"), known_before)
        await asyncio.sleep(rng.choice((0.0, 0.01, 0.2)))
        with ExitStack() as wanted:
            reads.want(write)
            wanted.callback(reads.unwant, write)
            evidence = await reads.next(write)
            assert write.owner in evidence.held
            usable = [
                began_at
                for began_at, names in leases.begun[known_before:]
                if names is None or write.owner in names
            ]
            assert evidence.begun_at in usable
            assert clock.now() - evidence.begun_at <= OLDEST_S
            await asyncio.sleep(VALID_S + 0.001)
            later = reads.current(write)
            assert later is None or later.begun_at > evidence.begun_at
        ended += 1

    running = asyncio.create_task(reads.run())
    writes = []
    for _ in range(200):
        writes.append(asyncio.create_task(one()))
        await asyncio.sleep(rng.choice((0.0, 0.005, 0.05, 1.0)))
    await asyncio.gather(*writes)
    assert ended == 200
    begun = len(leases.begun)
    await asyncio.sleep(60)
    assert len(leases.begun) <= begun + 1, "with nothing to write nothing is read"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
