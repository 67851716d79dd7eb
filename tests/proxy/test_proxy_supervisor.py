"""The supervisor of a controller: it runs once at a time, again after a crash, and not while it is held."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import SystemClock
from proxy.supervisor import Supervisor


class Starts:
    """Counts starts."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def note(self) -> None:
        self.count += 1
        self._changed.set()

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def supervised(script: str, *, pause_s: float = 0.05) -> AsyncIterator[tuple[Supervisor, Starts]]:
    starts = Starts()
    supervisor = Supervisor(
        ["bash", "-c", script],
        environment=os.environ,
        on_start=starts.note,
        backoff=ExponentialBackoff(base_s=pause_s, max_s=60, healthy_s=60, rng=random.Random(1), jitter=0.0),
        clock=SystemClock(),
        grace_s=5,
    )
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, starts
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def running_pid(supervisor: Supervisor) -> int:
    async with asyncio.timeout(10):
        while (pid := supervisor.pid) is None:  # noqa: ASYNC110 - it is being started
            await asyncio.sleep(0.01)
    return pid


async def test_nothing_runs_before_the_first_resume() -> None:
    async with supervised("sleep 60") as (supervisor, starts):
        await asyncio.sleep(0.1)
        assert starts.count == 0
        supervisor.resume()
        await starts.wait(1)


async def test_a_held_controller_has_ended_and_starts_anew_when_it_is_resumed() -> None:
    async with supervised("sleep 60") as (supervisor, starts):
        supervisor.resume()
        first = await running_pid(supervisor)
        await supervisor.hold()
        assert supervisor.pid is None
        assert not runs(first)
        await asyncio.sleep(0.1)
        assert starts.count == 1
        supervisor.resume()
        assert await running_pid(supervisor) != first
        assert starts.count == 2


async def test_a_controller_that_is_held_at_its_start_has_ended_too() -> None:
    async with supervised("sleep 60") as (supervisor, starts):
        supervisor.resume()
        await starts.wait(1)
        await supervisor.hold()
        assert supervisor.pid is None


async def test_a_controller_that_ends_by_itself_starts_again_after_longer_and_longer_pauses() -> None:
    loop = asyncio.get_running_loop()
    async with supervised("exit 3", pause_s=0.1) as (supervisor, starts):
        supervisor.resume()
        begun = loop.time()
        await starts.wait(4)
        assert loop.time() - begun >= 0.1 + 0.2 + 0.4


async def test_a_pause_after_a_crash_ends_no_hold() -> None:
    async with supervised("exit 3", pause_s=0.2) as (supervisor, starts):
        supervisor.resume()
        await starts.wait(1)
        await supervisor.hold()
        await asyncio.sleep(0.4)
        assert starts.count == 1


async def test_cancelling_ends_the_controller() -> None:
    async with supervised("trap 'exit 0' TERM; while true; do sleep 0.05; done") as (supervisor, _):
        supervisor.resume()
        pid = await running_pid(supervisor)
    assert not runs(pid)


async def test_a_command_that_cannot_be_started_is_a_fault() -> None:
    supervisor = Supervisor(
        ["/no/such/command"],
        environment={},
        on_start=lambda: None,
        backoff=ExponentialBackoff(base_s=1, max_s=1, healthy_s=1, rng=random.Random(1)),
        clock=SystemClock(),
        grace_s=1,
    )
    supervisor.resume()
    with pytest.raises(FileNotFoundError):
        await supervisor.run()
