"""`ringleader dashboard` as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit


class RunningDashboard(NamedTuple):
    """A process that serves; `url` is what it printed."""

    process: Process
    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def interrupt(self, by: signal.Signals = signal.SIGINT) -> tuple[int | None, str]:
        """Exit code and stderr after Ctrl-C, or another signal."""
        self.process.send_signal(by)
        _, err = await asyncio.wait_for(self.process.communicate(), 40)
        return self.process.returncode, err.decode()


async def started(*words: str, env: Mapping[str, str] | None = None) -> Process:
    command = (sys.executable, "-m", "ringleader", "dashboard", *words)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=env)


@asynccontextmanager
async def dashboard(*words: str, env: Mapping[str, str] | None = None) -> AsyncIterator[RunningDashboard]:
    """`ringleader dashboard WORDS`, serving."""
    process = await started(*words, env=env)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 40)).decode().strip()
        if not line:
            raise AssertionError((await process.communicate())[1].decode())
        yield RunningDashboard(process, line)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def failed(*words: str, env: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """Exit code and stderr of `ringleader dashboard WORDS`, which ends by itself."""
    process = await started(*words, env=env)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, err.decode()
