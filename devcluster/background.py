"""Control planes in the background: started detached, found again and ended by name.

Owns the folder of their records, and the detached process that keeps each one up (`python -m devcluster.background`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import msgspec

from devcluster.plane import ControlPlane

Kind = Literal["embedded", "real"]

_RECORD = "record.json"
_LOG = "log"
_START_S = 90.0
_NODE_START_S = 60.0
_SERVER_START_S = 30.0
_END_S = 60.0
_PLANE = "plane"
_LOG_LINES = 8


class BackgroundFailed(Exception):
    """A control plane in the background did not start or did not end."""


class Record(msgspec.Struct, frozen=True):
    """A control plane in the background; written when it is ready."""

    name: str
    kind: Kind
    pid: int
    born: str
    started_at: float
    url: str
    kubeconfig: str
    pids: list[int]
    rbac: bool = True
    nodes: int = 0
    api_servers: int = 1

    @property
    def is_up(self) -> bool:
        """Whether the process that wrote this still runs. Its start time tells it from a later process of that pid."""
        return _birth(self.pid) == self.born


def state_folder() -> Path:
    """Folder of the records of a user's control planes."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "ringleader" / "devcluster"


def find_background(name: str) -> Record | None:
    """The record of *name*, also of one that has died; None if there is none."""
    try:
        return msgspec.json.decode((state_folder() / name / _RECORD).read_bytes(), type=Record)
    except (FileNotFoundError, NotADirectoryError):
        return None


def all_background() -> list[Record]:
    """Every record, by name."""
    folder = state_folder()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [record for name in names if (record := find_background(name)) is not None]


def start_background(
    name: str, kind: Kind, *, rbac: bool = False, nodes: int = 0, api_servers: int = 1
) -> tuple[Record, bool]:
    """The record of *name*, started if it is not up, and whether it was started.

    *rbac*: of an embedded one; *nodes* and *api_servers*: of a real one.

    Raises: BackgroundFailed with the end of its log if it does not become ready.
    """
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder / f".{name}.lock"):
        record = find_background(name)
        if record is not None and record.is_up:
            return record, False
        _remove(folder / name)
        (folder / name).mkdir(mode=0o700)
        return _start(folder / name, kind, rbac=rbac, nodes=nodes, api_servers=api_servers), True


def stop_background(name: str) -> bool:
    """End *name* and remove its folder; False if it was not up.

    Raises: BackgroundFailed if it does not end.
    """
    folder = state_folder()
    if not (folder / name).is_dir():
        return False
    with _locked(folder / f".{name}.lock"):
        record = find_background(name)
        was_up = record is not None and record.is_up
        if record is not None and was_up:
            os.kill(record.pid, signal.SIGTERM)
            deadline = time.monotonic() + _END_S
            while record.is_up:
                if time.monotonic() > deadline:
                    raise BackgroundFailed(f"{name} (process {record.pid}) does not end")
                time.sleep(0.05)
        _remove(folder / name)
        return was_up


def _remove(folder: Path) -> None:
    """Remove the files of a control plane that has ended, and what nodes left if it was killed."""
    if (folder / _PLANE).is_dir():
        from devcluster.nodes import remove_leftovers

        remove_leftovers(folder / _PLANE)
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, kind: Kind, *, rbac: bool, nodes: int, api_servers: int) -> Record:
    command = [sys.executable, "-m", "devcluster.background", "--kind", kind, "--folder", str(folder)]
    command += ["--rbac"] * rbac + ["--nodes", str(nodes), "--api-servers", str(api_servers)]
    with (folder / _LOG).open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + _START_S + nodes * _NODE_START_S + api_servers * _SERVER_START_S
    while (record := find_background(folder.name)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            lines = (folder / _LOG).read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise BackgroundFailed("the control plane did not start:\n" + "\n".join(lines))
        time.sleep(0.05)
    return record


def _birth(pid: int) -> str:
    """When process *pid* was started, in the kernel's ticks; empty if it does not run."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- the detached process ---------------------------------------------------------------------------------------


def _plane(
    kind: Kind, directory: Path, *, rbac: bool, nodes: int, api_servers: int
) -> AbstractAsyncContextManager[ControlPlane]:
    if nodes:
        from devcluster.nodes import node_plane

        return node_plane(directory, nodes=nodes)
    if kind == "real":
        from devcluster.real import real_plane

        return real_plane(directory, api_servers=api_servers)
    from devcluster.embedded import embedded_plane

    return embedded_plane(directory, rbac=rbac)


async def _run(kind: Kind, folder: Path, *, rbac: bool, nodes: int, api_servers: int) -> None:
    """Keep a control plane up until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    plane_in = _plane(kind, folder / _PLANE, rbac=rbac, nodes=nodes, api_servers=api_servers)
    async with plane_in as plane:
        record = Record(
            name=folder.name,
            kind=kind,
            pid=os.getpid(),
            born=_birth(os.getpid()),
            started_at=time.time(),
            url=plane.url,
            kubeconfig=str(plane.kubeconfig),
            pids=list(plane.pids),
            rbac=rbac or kind == "real",
            nodes=nodes,
            api_servers=api_servers,
        )
        scratch = folder / f".{_RECORD}"
        scratch.write_bytes(msgspec.json.encode(record))
        scratch.replace(folder / _RECORD)
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devcluster.background", description=__doc__)
    parser.add_argument("--kind", choices=["embedded", "real"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rbac", action="store_true")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--api-servers", type=int, default=1)
    options = parser.parse_args()
    asyncio.run(
        _run(
            options.kind,
            options.folder,
            rbac=options.rbac,
            nodes=options.nodes,
            api_servers=options.api_servers,
        )
    )


if __name__ == "__main__":
    main()
