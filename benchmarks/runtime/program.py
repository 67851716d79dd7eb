"""A measured program between its start and its end, and what it reports meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measuring.processes import Ended, PeakMemory, Running, start
from benchmarks.measuring.sightings import NotSeen
from benchmarks.runtime.contestants import Order
from benchmarks.runtime.ground import Ground
from benchmarks.runtime.records import R, Records

_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Program:
    """One running program. *started_at* is CLOCK_MONOTONIC, just before the process was made."""

    running: Running
    records: Records
    started_at: float

    async def wait_for(self, kind: type[R], *, within_s: float) -> R:
        """Its first record of *kind*. Raises: NotSeen, Ended."""
        return (await self.wait_for_many(kind, 1, within_s=within_s))[0]

    async def wait_for_many(self, kind: type[R], count: int, *, within_s: float) -> list[R]:
        """Its records of *kind*, once there are *count*. Raises: NotSeen, Ended."""
        ends_at = time.monotonic() + within_s
        while len(found := self.records.of(kind)) < count:
            self.check()
            if time.monotonic() > ends_at:
                name = self.running.log.stem
                raise NotSeen(f"{name} reported {len(found)} of {count} within {within_s:g} s")
            await asyncio.sleep(_POLL_S)
        return found

    def check(self) -> None:
        """Raises: Ended if it has, although nobody asked it to."""
        if not self.running.is_running:
            raise Ended(f"{self.running.log.stem} ended: {self.running.last_words()}")

    def peak_mb(self) -> float:
        """Peak memory of the process and its children that run now, in millions of bytes."""
        memory = PeakMemory(self.running.pid)
        memory.look()
        return memory.mb


@asynccontextmanager
async def measured(
    ground: Ground,
    stem: str,
    command: Callable[[Order], list[str]],
    *,
    objects: int,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Program]:
    """The program at work; it is killed when the block ends."""
    name = ground.fresh_name(stem)
    report = ground.directory / f"{name}.report"
    order = Order(
        kubeconfig=kubeconfig or ground.account.kubeconfig,
        namespace=ground.namespace,
        objects=objects,
        report=report,
    )
    started_at = time.monotonic()
    running = await start(
        lambda _: command(order), ground.directory, name=name, environment={}, clock=ground.clock
    )
    try:
        yield Program(running, Records(report), started_at)
    finally:
        await running.kill()
