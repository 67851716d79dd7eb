"""What every demo is run by: its folder, its event loop, its exit code.

The folder is kept when a demo fails, so that the logs can be read.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from devcluster.real import BinariesMissing, PlaneFailed, ensure_binaries, kubernetes_recipe
from devcluster.real.binaries import SERVERS
from devcluster.real.build_progress import ConsoleProgress
from ringleader.testing.client import RequestFailedError
from ringleader.testing.fleet import unwrapped
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.ownership_checks import TooFewReconcilesError
from ringleader.testing.replica import ReplicaFailedError


def run_in_folder(demo: Callable[[Path], Coroutine[None, None, int]]) -> int:
    """The exit code of *demo*, which gets a folder for its files; 1, and a line that says why, if it breaks off."""
    directory = Path(tempfile.mkdtemp(prefix="ringleader-demo-"))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            code = runner.run(demo(directory))
        except (NotConvergedError, ReplicaFailedError, TooFewReconcilesError, PlaneFailed) as error:
            sys.stderr.write(f"FAILED: {error}\n")
            code = 1
        except (RequestFailedError, aiohttp.ClientError, TimeoutError) as error:
            sys.stderr.write(f"FAILED: the API server did not answer as expected: {error!r}\n")
            code = 1
        except KeyboardInterrupt:  # the fleet has ended by now
            shutil.rmtree(directory, ignore_errors=True)
            sys.stderr.write("the demo was interrupted; every process that it had started is gone\n")
            raise
    if code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        sys.stderr.write(f"logs and journals: {directory}\n")
    return code


def build_if_missing() -> str:
    """Build the real servers if they are missing, with progress on stderr. Returns the problem, if any."""
    try:
        ensure_binaries(SERVERS, kubernetes_recipe(), progress=ConsoleProgress())
    except BinariesMissing as missing:
        return f"{missing.reason}; {missing.remedy}"
    return ""


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@asynccontextmanager
async def background(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Let endless *work* run during the block."""
    async with unwrapped(), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work, name=name)
        yield
        task.cancel()


async def until_interrupted() -> None:
    """Wait for Ctrl-C, which then ends the fleet and is no failure."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
