"""Places and processes of a fleet: real processes, started again, frozen, killed, and gone with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeio.clock import SystemClock
from ringleader.testing.process import Process
from ringleader.testing.replica import Replica, ReplicaFailedError
from ringleader.testing.single_task import single_task

SLEEP = ("/bin/sleep", "60")
CLOCK = SystemClock()


@asynccontextmanager
async def place(directory: Path, command: Sequence[str] = SLEEP) -> AsyncIterator[Replica]:
    replica = Replica(
        "replica-1",
        command=lambda number: [*command],
        directory=directory,
        environment={"GREETING": "hello"},
        clock=CLOCK,
        restart_delay_s=0.01,
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(replica.run(), name="place")
        yield replica
        task.cancel()


async def started(replica: Replica, count: int = 1) -> Process:
    replica.want()
    await replica.wait_until(lambda: len(replica.processes) >= count, within_s=10)
    await asyncio.sleep(0.1)  # the launcher becomes the command
    return replica.processes[count - 1]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_killed_process_is_started_again_and_its_death_is_noted(tmp_path: Path) -> None:
    async with place(tmp_path) as replica:
        first = await started(replica)
        before = CLOCK.now()
        replica.kill()
        second = await started(replica, 2)
        assert second.pid != first.pid
        assert first.ended_at is not None
        assert before <= first.ended_at <= CLOCK.now()
        assert first.exit_code == -signal.SIGKILL
        assert replica.unasked_exits == []


async def test_an_end_that_nobody_asked_for_is_told_apart(tmp_path: Path) -> None:
    async with place(tmp_path, ("/bin/sh", "-c", "echo $GREETING; exit 7")) as replica:
        await started(replica, 2)
        assert [exit_.code for exit_ in replica.unasked_exits][:1] == [7]
        assert replica.log.read_text().startswith("hello\n")


async def test_a_stopped_place_stays_empty_until_it_is_wanted_again(tmp_path: Path) -> None:
    async with place(tmp_path) as replica:
        await started(replica)
        await replica.stop()
        await asyncio.sleep(0.1)
        assert replica.current is None
        assert len(replica.processes) == 1
        with pytest.raises(ReplicaFailedError, match="replica-1 has no running process"):
            replica.kill()
        await started(replica, 2)


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"
    async with place(tmp_path, ("/bin/sh", "-c", program)) as replica:
        process = await started(replica)
        async with asyncio.timeout(30):
            while not ready.exists():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        began = time.monotonic()
        await replica.stop(grace_s=0.3)
        assert process.exit_code == -signal.SIGKILL
        assert time.monotonic() - began < 5


async def until_state(pid: int, wanted: str) -> None:
    """The kernel delivers a signal when the process gets its turn: on a busy machine that takes a while."""
    async with asyncio.timeout(30):
        while state(pid) != wanted:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def test_frozen_time_is_no_working_time(tmp_path: Path) -> None:
    async with place(tmp_path) as replica:
        process = await started(replica)
        replica.freeze()
        await until_state(process.pid, "T")
        assert replica.is_frozen
        await asyncio.sleep(0.05)
        replica.wake()
        await until_state(process.pid, "S")
        replica.kill()
        await replica.wait_until(lambda: process.ended_at is not None, within_s=5)
        (_, stopped), (woken, ended) = process.working()
        assert 0.04 < woken - stopped < 5
        assert ended == process.ended_at


async def test_a_frozen_process_can_be_killed(tmp_path: Path) -> None:
    async with place(tmp_path) as replica:
        process = await started(replica)
        replica.freeze()
        replica.kill()
        await replica.wait_until(lambda: process.ended_at is not None, within_s=5)
        assert not process.is_frozen


async def test_the_end_of_a_fleet_ends_its_processes(tmp_path: Path) -> None:
    async with place(tmp_path) as replica:
        process = await started(replica)
    assert process.exit_code == -signal.SIGKILL


def test_processes_are_gone_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, pathlib, sys
            from kubeio.clock import SystemClock
            from ringleader.testing.process import start_process

            async def main():
                process = await start_process(
                    ["/bin/sleep", "60"], name="x", log=pathlib.Path(sys.argv[1]), environment={},
                    clock=SystemClock(),
                )
                print(process.pid, flush=True)
                await asyncio.sleep(60)

            asyncio.run(main())
            """
        )
    )
    parent = subprocess.Popen([sys.executable, script, tmp_path / "log"], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and state(child) != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists() or state(child) == "Z"


@asynccontextmanager
async def _entered(log: list[str]) -> AsyncIterator[int]:
    async with asyncio.TaskGroup():
        log.append(f"in {id(asyncio.current_task())}")
        yield 7
        log.append(f"out {id(asyncio.current_task())}")


async def test_a_held_context_is_entered_and_left_by_one_task() -> None:
    log: list[str] = []
    async with single_task(_entered(log)) as value:
        assert value == 7
        assert str(id(asyncio.current_task())) not in log[0]
    assert log[0].split()[1] == log[1].split()[1]


class _Broken:
    async def __aenter__(self) -> None:
        raise OSError(os.strerror(2))

    async def __aexit__(self, *error: object) -> None: ...


async def test_what_a_held_context_raises_at_its_entry_is_raised_here() -> None:
    with pytest.raises(OSError, match="No such file"):
        async with single_task(_Broken()):
            pass
