"""Children of a control plane: their output is kept, and they never outlive the process that started them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devcluster.children import start_child

SLEEP = shutil.which("sleep") or "/bin/sleep"

_OWNER = f"""
import asyncio, sys
from pathlib import Path
from devcluster.children import start_child

async def main():
    child = await start_child(["{SLEEP}", "3600"], name="sleep", log=Path(sys.argv[1]))
    print(child.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_child_dies_with_the_process_that_started_it(tmp_path: Path, ending: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner:
        pid = int(owner.stdout.readline())
        assert is_running(pid)
        os.kill(owner.pid, ending)
    deadline = time.monotonic() + 5
    while is_running(pid):
        assert time.monotonic() < deadline, "the child outlived its owner"
        time.sleep(0.02)


async def test_child_whose_parent_ended_before_it_began_does_not_begin(tmp_path: Path) -> None:
    tied = Path(sys.modules[start_child.__module__].__file__ or "").with_name("tied.py")
    nobody = 2**22 + 1
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(tied), str(nobody), SLEEP, "3600"
    )
    assert await asyncio.wait_for(process.wait(), 10) == 1


async def test_output_is_kept_and_its_end_can_be_told(tmp_path: Path) -> None:
    script = "for i in 1 2 3; do echo line $i; done; echo oops >&2; exit 3"
    child = await start_child(["/bin/sh", "-c", script], name="talker", log=tmp_path / "log")
    assert await asyncio.wait_for(child.wait(), 10) == 3
    assert not child.is_running
    assert child.last_lines(2) == "line 3\noops"
    assert child.rss_bytes() == 0


async def test_child_that_does_not_end_when_asked_is_killed_after_its_grace(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    child = await start_child(["/bin/sh", "-c", script], name="stubborn", log=tmp_path / "log")
    deadline = time.monotonic() + 10
    while child.last_lines() != "ready":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert child.rss_bytes() > 100_000
    began = time.monotonic()
    await child.end(grace_s=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert not child.is_running
    await child.end(grace_s=0.3)
