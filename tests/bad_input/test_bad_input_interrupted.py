"""Ctrl-C and worse: a command that starts processes leaves none behind, and says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE_S = 40.0

pytestmark = pytest.mark.fleet


def processes_about(folder: Path) -> list[int]:
    """Processes that were started with a path below *folder*."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except OSError:  # it has ended meanwhile
            continue
        if str(folder).encode() in words:
            found.append(int(entry.name))
    return found


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
async def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ringleader", "demo", "--headless", "--objects", "20"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    # a control plane, two sharders, four replicas
    await wait_until(lambda: len(processes_about(tmp_path)) >= 7)
    demo.send_signal(number)
    out, err = await demo.communicate()
    await wait_until(lambda: not processes_about(tmp_path))
    assert out == b""
    assert b"Traceback" not in err
    if number == signal.SIGINT:
        assert demo.returncode == 130
        assert b"the demo was interrupted; every process that it had started is gone" in err
        assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing else is awaited
