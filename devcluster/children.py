"""Child processes: started with their output in a file, ended with their parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_TIED = Path(__file__).with_name("tied.py")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_START_TIMEOUT_S = 60.0


class PlaneFailed(Exception):
    """A server of a control plane did not start, did not become ready, or refused an order."""


class Child:
    """One running server. Dies with the thread that started it, also when the process is SIGKILLed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def end(self, *, grace_s: float) -> None:
        """Ask it to end, kill it after *grace_s* (at once when 0), and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            if grace_s > 0:
                self._process.send_signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), grace_s)
            if self.is_running:
                self._process.kill()
        await self._process.wait()

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, for messages."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""

    def rss_bytes(self) -> int:
        """Resident memory; 0 once it has ended."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        return 0


async def start_child(command: Sequence[str], *, name: str, log: Path) -> Child:
    """Start *command*, append its output to *log*; it ends with this process. A Ctrl-C does not reach it."""
    tied = [sys.executable, "-I", "-S", str(_TIED), str(os.getpid()), *command]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *tied, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return Child(name, process, log)


async def wait_for_file(child: Child, path: Path) -> str:
    """What *child* writes to *path* once it serves. Raises: PlaneFailed with the end of its log."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not path.exists():  # noqa: ASYNC240 - another process's file
        if not child.is_running or time.monotonic() > deadline:
            raise PlaneFailed(f"{child.name} did not start: {child.last_lines()}")
        await asyncio.sleep(0.02)
    return path.read_text(encoding="utf-8").strip()  # noqa: ASYNC240
