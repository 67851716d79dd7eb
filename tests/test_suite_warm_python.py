"""A command of the warm Python ends, prints and is stopped as one of the cold does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.warm_python import warm_python

COMMANDS = [
    ["-m", "ringleader", "--version"],
    ["-m", "ringleader", "stats"],
    ["-m", "sharder", "--lease-duration", "0"],
    ["-P", "-m", "shard_controller"],
    ["-c", "import sys; print(__name__); sys.exit(7)"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_warm_command_ends_as_a_cold_one(words: list[str], tmp_path: Path) -> None:
    warm, cold = (
        subprocess.run([python, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        for python in (warm_python(), sys.executable)
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


@pytest.mark.parametrize("setting", ["PYTHONPATH", "LC_ALL"])
def test_another_setting_of_python_starts_cold(setting: str, tmp_path: Path) -> None:
    (tmp_path / "shard_controller.py").write_text("print('cold')\n")
    command = [warm_python(), "-m", "shard_controller"]
    environment = {**os.environ, setting: "C"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "cold\n"


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that waits for a login tool; `pid` in the folder is the tool's process."""
    file = tmp_path / "kubeconfig"
    script = f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid && exec sleep 60"
    tool = {"command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    tool["apiVersion"] = "client.authentication.k8s.io/v1"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    users = [{"name": "c", "user": {"exec": tool}}]
    lists = {"clusters": [cluster], "contexts": [context], "users": users}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", **lists}))
    command = [warm_python(), "-m", "ringleader", "status", "--kubeconfig", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_the_command(
    waiting: subprocess.Popen[str], number: signal.Signals, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    wait_until(pid.exists)
    tool = int(pid.read_text())
    runner = parent_of(tool)
    fork = Path("/proc", str(parent_of(runner)))
    assert fork.exists()
    waiting.send_signal(number)
    assert waiting.wait(30) == (130 if number == signal.SIGINT else -number)
    wait_until(lambda: not fork.exists())
    os.killpg(runner, signal.SIGKILL)
