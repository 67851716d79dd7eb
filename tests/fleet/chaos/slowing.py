"""Slows a process down: by a CPU quota of a cgroup where this machine lets us, else by SIGSTOP and SIGCONT in turn."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from ringleader.testing.process import Process

_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
_PERIOD_US = 100_000


def cgroup_root() -> Path | None:
    """The hierarchy in which this process may make cgroups with a CPU quota; None if there is none."""
    for root in _ROOTS:
        quota = root / "cpu.cfs_quota_us" if root != _ROOTS[1] else root / "cgroup.controllers"
        if quota.exists() and os.access(root, os.W_OK):
            return root
    return None


@contextlib.asynccontextmanager
async def slowed(process: Process, *, share: float) -> AsyncIterator[str]:
    """*process* gets *share* of a core during the block. Yields by which means."""
    root = cgroup_root()
    if root is None:
        async with asyncio.TaskGroup() as tasks:
            cycle = tasks.create_task(_stop_and_go(process, share), name=f"slow {process.pid}")
            yield "signals"
            cycle.cancel()
        process.wake()
        return
    group = root / f"ringleader-chaos-{process.pid}"
    group.mkdir()
    try:
        if root == _ROOTS[0]:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(share * _PERIOD_US)))
        else:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{round(share * _PERIOD_US)} {_PERIOD_US}")
        _move(process.pid, group)
        yield "cgroup"
    finally:
        _move(process.pid, root)
        for _ in range(100):  # a process that just ended is in it for a moment
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            await asyncio.sleep(0.05)


def _move(pid: int, group: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


async def _stop_and_go(process: Process, share: float) -> None:
    while True:
        process.freeze()
        await asyncio.sleep(0.1 * (1 - share))
        process.wake()
        await asyncio.sleep(0.1 * share)
