"""The controller as a child process: it ends as a whole, and with this process.

Owns one process group at a time. When to start it again, and after which pause, is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Never

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.02
_KILLED_WITHIN_S: Final = 30.0
"""A process in the kernel's hands may survive SIGKILL for a while."""
_REAP_EVERY_S: Final = 5.0


class StuckGroup(Exception):
    """Processes of a controller survived SIGKILL."""

    exit_code = 1

    def __init__(self, group: int) -> None:
        self.group = group
        super().__init__(f"processes of group {group} still run {_KILLED_WITHIN_S:g} s after SIGKILL")


class Child:
    """A running controller, leader of a session and process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id, which is its group's."""
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code once it has ended; a signal's number is negative. What it left behind may still run.

        Meanwhile what it leaves behind is reaped, if that becomes a child of this process: in a container we are
        process 1.
        """
        async with asyncio.TaskGroup() as tasks:
            reaping = tasks.create_task(self._reap_for_ever(), name="orphans of the controller")
            try:
                return await self._process.wait()
            finally:
                reaping.cancel()

    async def _reap_for_ever(self) -> Never:
        while True:
            await asyncio.sleep(_REAP_EVERY_S)
            for pid in _orphans():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait

    async def end(self, *, grace_s: float) -> int:
        """Send SIGTERM, after *grace_s* SIGKILL to all of its group; its exit code once nothing of the group runs.

        Raises: StuckGroup.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
        self.kill()
        code = await self._process.wait()
        await self._wait_group_gone()
        return code

    def kill(self) -> bool:
        """Send SIGKILL to all of its group; whether there was something to kill."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS: only zombies are left
            return False
        return True

    async def _wait_group_gone(self) -> None:
        """Wait until nothing of the group runs; reap what of it became ours: in a container we are process 1."""
        deadline = asyncio.get_running_loop().time() + _KILLED_WITHIN_S
        while self.kill():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-self.pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            if _only_zombies(self.pid):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise StuckGroup(self.pid)
            await asyncio.sleep(_POLL_S)


def _orphans() -> list[int]:
    """Children of this process that it did not start: they belong to another session, and do not lead it."""
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        return []  # no Linux
    found = []
    for pid in map(int, children):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) not in (os.getsid(0), pid):
                found.append(pid)
    return found


def _only_zombies(group: int) -> bool:
    """Whether every process of *group* has ended, though its parent has not asked for it. False if that is unknown."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of, *_ = path.read_text().rpartition(")")[2].split()
            if of == str(group):
                states.append(state)
    return bool(states) and all(state in "ZX" for state in states)


async def start_child(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None
) -> Child:
    """Start *command* with exactly this *environment*, in *folder*; its output is ours.

    It is killed when the thread that runs this loop ends, also by SIGKILL. Raises: OSError if it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        preexec_fn=_tie(os.getpid()),
    )
    return Child(process)


def _tie(parent: int) -> Callable[[], None] | None:
    """What asks the kernel, in the child, to kill it with *parent*. Here no program can do it: the image has none."""
    if sys.platform != "linux":
        return None
    prctl, getppid, leave = ctypes.CDLL(None).prctl, os.getppid, os._exit

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if getppid() != parent:  # it ended before the request was made
            leave(1)

    return tie
