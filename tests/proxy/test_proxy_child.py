"""The controller as a child process: it ends whole, after its grace, and with its parent. Starts processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kubeio.access.cluster import in_cluster, load_cluster
from kubeio.clock import ManualClock
from kubeio.errors import InputError
from proxy.child import Child, start_child
from proxy.controller_files import controller_folder, environment, write_files
from tests.proxy.relays import LOOPBACK

PR_SET_CHILD_SUBREAPER = 36
LEAVES_ONE_BEHIND = "(trap '' TERM; echo $BASHPID > {file}; exec sleep 60) & wait"


async def shell(script: str) -> Child:
    return await start_child(["bash", "-c", script], environment=os.environ)


async def written(file: Path) -> int:
    async with asyncio.timeout(10):
        while not file.exists() or not file.read_text().strip():  # noqa: ASYNC110, ASYNC240 - another process's file
            await asyncio.sleep(0.01)
    return int(file.read_text())  # noqa: ASYNC240


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_child_that_ends_by_itself_gives_its_exit_code() -> None:
    child = await shell("exit 7")
    assert await child.wait() == 7
    assert await child.end(grace_s=1) == 7


async def test_sigterm_comes_first_and_gives_time() -> None:
    child = await shell("trap 'sleep 0.1; exit 5' TERM; echo $$ > /dev/null; sleep 60 & wait")
    await asyncio.sleep(0.2)
    assert await child.end(grace_s=10) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux'")
async def test_what_a_running_child_leaves_behind_is_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its orphans become ours, as they do in a container whose process 1 is the proxy."""
    monkeypatch.setattr("proxy.child._REAP_EVERY_S", 0.05)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        child = await shell(f"(sleep 0.2 & echo $! > {tmp_path / 'orphan'}); sleep 60")
        orphan = await written(tmp_path / "orphan")
        waiting = asyncio.create_task(child.wait())
        async with asyncio.timeout(10):
            while Path(f"/proc/{orphan}").exists():  # noqa: ASYNC110, ASYNC240 - another process's
                await asyncio.sleep(0.02)
        assert await child.end(grace_s=5) == await waiting == -signal.SIGTERM
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


async def test_a_child_that_outstays_its_grace_is_killed() -> None:
    child = await shell("trap '' TERM; while true; do sleep 0.1; done")
    await asyncio.sleep(0.2)
    assert await child.end(grace_s=0.1) == -signal.SIGKILL


async def test_what_the_child_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    child = await shell(LEAVES_ONE_BEHIND.format(file=tmp_path / "pid"))
    left_behind = await written(tmp_path / "pid")
    await child.end(grace_s=5)
    assert not runs(left_behind)


async def test_what_a_child_that_ended_by_itself_left_behind_ends_too(tmp_path: Path) -> None:
    child = await shell(f"{LEAVES_ONE_BEHIND.format(file=tmp_path / 'pid').removesuffix(' wait')} sleep 0.1")
    left_behind = await written(tmp_path / "pid")
    assert await child.wait() == 0
    assert runs(left_behind)
    await child.end(grace_s=0)
    assert not runs(left_behind)


async def test_a_child_has_a_group_of_its_own_and_the_environment_that_it_is_given(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        f"import os; open({str(tmp_path / 'env')!r}, 'w').write(repr(dict(os.environ)))",
    ]
    child = await start_child(command, environment={"ONLY": "this"})
    assert await child.wait() == 0
    assert "'ONLY': 'this'" in (tmp_path / "env").read_text()
    assert "PATH" not in (tmp_path / "env").read_text()
    assert child.pid != os.getpgid(0)


async def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await start_child(["/no/such/command"], environment={})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os
from proxy.child import start_child
async def main():
    child = await start_child(["bash", "-c", "echo $$ > {tmp_path / "pid"}; exec sleep 60"], environment=os.environ)
    await child.wait()
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program])  # noqa: ASYNC220
    child = await written(tmp_path / "pid")
    parent.kill()
    parent.wait()
    async with asyncio.timeout(5):
        while runs(child):  # noqa: ASYNC110 - no child of ours
            await asyncio.sleep(0.01)


def test_the_files_are_a_service_account_s_and_a_kubeconfig(tmp_path: Path) -> None:
    write_files(tmp_path / "mount", port=1234, ca=LOOPBACK.ca, token="loopback", namespace="web")
    write_files(tmp_path / "mount", port=6443, ca=LOOPBACK.ca, token="loopback", namespace="web")
    names = sorted(path.name for path in (tmp_path / "mount").iterdir())
    assert names == ["ca.crt", "kubeconfig", "namespace", "token"]
    for name in names:
        assert stat.S_IMODE((tmp_path / "mount" / name).stat().st_mode) == 0o600
    given = environment({"HOME": "/", "KUBECONFIG": "other"}, tmp_path / "mount", port=6443)
    assert given["HOME"] == "/"
    by_file = load_cluster(kubeconfig=given["KUBECONFIG"])
    by_mount = in_cluster(given, tmp_path / "mount", clock=ManualClock())
    for cluster in (by_file, by_mount):
        assert (cluster.server, cluster.namespace, cluster.trust.ca) == (
            "https://127.0.0.1:6443",
            "web",
            LOOPBACK.ca,
        )
        credential = cluster.credentials.current()
        assert credential is not None
        assert credential.authorization == "Bearer loopback"
    assert msgspec.json.decode((tmp_path / "mount" / "kubeconfig").read_bytes())["kind"] == "Config"


def test_a_folder_for_the_controllers_files_that_cannot_be_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for given in (tmp_path / "file", tmp_path / "file" / "below"):
        with (
            pytest.raises(InputError, match=r"--controller-files: .* cannot be written to"),
            controller_folder(given),
        ):
            pass
    with controller_folder(tmp_path / "new" / "one") as folder:
        assert folder.is_dir()
