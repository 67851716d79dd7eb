"""`ringleader devcluster up --real --nodes`: pods run, and `down` leaves nothing, also after kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from devcluster.background import Record
from devcluster.nodes.configuration import PAUSE
from kubeio.resource import ApiResource
from ringleader.testing.client import IndependentClient
from tests.cluster.pod_fleet import PODS, eventually, is_ready, on

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
_FOLDERS = ("/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log", "/var/run")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def left_by_clusters(folder: Path) -> dict[str, set[str]]:
    """What a cluster whose files are in *folder* could leave on this machine."""
    links = json.loads(_output("ip", "-j", "link"))
    return {
        "processes": {line for line in _command_lines() if str(folder) in line},
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "links": {link["ifname"] for link in links},
        "routes": set(_output("ip", "route", "show", "table", "all").splitlines()),
        "network namespaces": set(_output("ip", "netns", "list").splitlines()),
        "nftables": set(_output("nft", "list", "ruleset").splitlines()),
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob("**/ringleader*")},
        "folders": {str(path) for root in _FOLDERS for path in Path(root).iterdir()},
        "files": {str(path) for path in folder.rglob("*") if not path.name.endswith(".lock")},
    }


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace").replace("\0", " ")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs `ringleader devcluster` with a state folder of its own."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def run(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ringleader", "devcluster", *arguments],
            env=environment | ({"PATH": path} if path else {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    yield run
    run("down")


@pytest.mark.parametrize("is_killed", [False, True], ids=["down", "down after kill -9"])
async def test_down_leaves_nothing_of_a_cluster_with_pods(
    run: Run, tmp_path: Path, *, is_killed: bool
) -> None:
    before = left_by_clusters(tmp_path)
    up = run("up", "--real", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    folder = tmp_path / "ringleader" / "devcluster" / "default"
    refused = run("load", str(folder / "record.json"))
    assert refused.returncode == 1
    assert "refused the image" in refused.stderr
    await _run_a_pod_on_each_node(Path(up.stdout.strip().partition("=")[2]))
    during = left_by_clusters(tmp_path)
    for kind in ("processes", "links", "routes", "cgroups", "files"):
        assert during[kind] - before[kind], f"the comparison does not see {kind}"
    if is_killed:
        pid = msgspec.json.decode((folder / "record.json").read_bytes(), type=Record).pid
        os.kill(pid, signal.SIGKILL)
    down = run("down")
    assert down.returncode == 0, down.stderr
    assert down.stdout == f"default is {'not up' if is_killed else 'down'}\n"
    _wait_equal(before, tmp_path)


def _wait_equal(before: dict[str, set[str]], folder: Path) -> None:
    deadline = time.monotonic() + 60
    parents = {str(folder / "ringleader"), str(folder / "ringleader" / "devcluster")}
    while True:
        after = left_by_clusters(folder)
        more = {kind: sorted(after[kind] - before[kind] - parents) for kind in after if kind != "nothing"}
        if not any(more.values()):
            return
        assert time.monotonic() < deadline, {kind: found for kind, found in more.items() if found}
        time.sleep(0.5)


async def _run_a_pod_on_each_node(kubeconfig: Path) -> None:
    async with IndependentClient(kubeconfig) as client:

        async def no_account() -> str:
            accounts = await client.list_all(ACCOUNTS, namespace="default")
            return "" if accounts else "no ServiceAccount in namespace default"

        await eventually(no_account, within_s=60)
        for number in (1, 2):
            container = {"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"}
            spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": f"node-{number}"}}
            pod = {"metadata": {"name": f"pause-{number}"}, "spec": spec}
            await client.create(PODS, pod, namespace="default")

        async def not_running() -> str:
            pods = await client.list_all(PODS, namespace="default")
            there = {on(pod) for pod in pods if is_ready(pod)}
            return "" if there == {"node-1", "node-2"} else f"pods run on {there}"

        await eventually(not_running, within_s=120)


def test_up_names_the_command_that_is_missing_and_ends_with_2(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("ip", "mount", "nsenter", "setpriv", "unshare"):
        (path / name).symlink_to(shutil.which(name) or name)
    up = run("up", "--real", "--nodes", "1", path=str(path))
    assert (up.returncode, up.stdout) == (2, "")
    assert up.stderr == "error: --nodes: 1 is not possible here; no nft on PATH (package nftables)\n"
