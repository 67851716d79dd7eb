"""A controller under the shard's Lease: real processes, and a clock that the test moves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeio.clock import ManualClock
from kubeio.shard.lease_validity import LeaseValidity
from proxy.controller_process import BehindRelay
from proxy.under_lease import UnderLease
from tests.kubeio.http.wire_server import WireServer
from tests.proxy.relays import Relayed, relayed

DURATION_S = 15.0
OBEYS = ["sleep", "60"]
WITHIN_S = 20.0


class Supervised:
    """*command* under a Lease whose age the test sets; SIGTERM alone for a minute."""

    def __init__(self, through: Relayed, command: list[str]) -> None:
        self.clock = ManualClock()
        self.validity = LeaseValidity(duration_s=DURATION_S, sent_at=self.clock.now())
        behind = BehindRelay(command, through.relay, through.locks, environment=os.environ, stop_within_s=60)
        self.process = UnderLease(behind, self.validity, clock=self.clock)

    def grow_to(self, durations: float) -> None:
        """The Lease is *durations* old now."""
        self.clock.advance(durations * DURATION_S - self.validity.age_s(self.clock.now()))


def stubborn(folder: Path) -> tuple[list[str], Callable[[], bool]]:
    """A controller that ignores SIGTERM, and whether it got as far."""
    ready = folder / "ready"
    script = f"trap '' TERM; echo > {ready}; while true; do sleep 0.05; done"
    return ["bash", "-c", script], ready.exists


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.01)


async def test_a_controller_counts_as_work_under_the_lease(server: WireServer, tmp_path: Path) -> None:
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, OBEYS)
        await its.process.start()
        assert its.validity.running == 1
        await its.process.stop()
        assert its.validity.running == 0
        await its.process.stop()
        assert its.validity.running == 0


async def test_a_controller_that_cannot_be_started_is_no_work(server: WireServer, tmp_path: Path) -> None:
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, ["/no/such/command"])
        with pytest.raises(OSError, match="no/such"):
            await its.process.start()
        assert its.validity.running == 0


async def test_a_controller_starts_once_the_lease_is_young(server: WireServer, tmp_path: Path) -> None:
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, OBEYS)
        its.grow_to(0.7)
        starting = asyncio.create_task(its.process.start())
        await asyncio.sleep(0.5)
        assert not starting.done()
        its.validity.renewed(sent_at=its.clock.now())
        await asyncio.wait_for(starting, WITHIN_S)
        await its.process.stop()


async def test_a_controller_ends_when_the_lease_is_too_old(server: WireServer, tmp_path: Path) -> None:
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, OBEYS)
        await its.process.start()
        waiting = asyncio.create_task(its.process.wait())
        its.grow_to(0.6)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        its.grow_to(0.7)
        assert await asyncio.wait_for(waiting, WITHIN_S) == -signal.SIGTERM
        assert its.validity.running == 0


async def test_a_controller_that_outstays_the_lease_is_killed_before_it_lapses(
    server: WireServer, tmp_path: Path
) -> None:
    command, is_ready = stubborn(tmp_path)
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, command)
        await its.process.start()
        await until(is_ready)
        waiting = asyncio.create_task(its.process.wait())
        its.grow_to(0.85)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert its.validity.running == 1
        its.grow_to(0.95)
        assert await asyncio.wait_for(waiting, WITHIN_S) == -signal.SIGKILL
        assert its.validity.running == 0


async def test_a_controller_that_ends_slowly_has_time_while_the_lease_is_renewed(
    server: WireServer, tmp_path: Path
) -> None:
    command, is_ready = stubborn(tmp_path)
    async with relayed(server.cluster(), tmp_path) as through:
        its = Supervised(through, command)
        await its.process.start()
        await until(is_ready)
        stopping = asyncio.create_task(its.process.stop())
        await asyncio.sleep(0.5)
        assert not stopping.done()
        its.grow_to(0.95)
        await asyncio.wait_for(stopping, WITHIN_S)
        assert its.validity.running == 0
