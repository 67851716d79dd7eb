"""The cgroups of a cluster: one folder for its nodes, in the one hierarchy of cgroup v2 or in each one of v1."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids")
_NEEDED_V2 = ("cpu", "cpuset", "memory", "pids")
_EMPTY_S = 20.0


def is_v2() -> bool:
    return (_ROOT / "cgroup.controllers").is_file()


def missing_controllers() -> list[str]:
    """Controllers that kubelet needs and this machine does not have."""
    if is_v2():
        there = (_ROOT / "cgroup.controllers").read_text().split()
        return [name for name in _NEEDED_V2 if name not in there]
    return [name for name in _NEEDED if not (_ROOT / name / "cgroup.procs").exists()]


def create_cgroup(path: str) -> None:
    """Create *path* (`cluster/node`) in every hierarchy, for kubelet to work under."""
    for root in _hierarchies():
        folder = root
        for part in Path(path).parts:
            if is_v2():
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEEDED_V2))
            folder /= part
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # v1: a new one has none, and takes no process
                if root.name == "cpuset" and not (folder / name).read_text().strip():
                    (folder / name).write_text((folder.parent / name).read_text())


def remove_cgroup(name: str) -> None:
    """Kill what is still in the cgroup *name* and below, and remove it. Without it: nothing.

    Raises: OSError if processes do not end.
    """
    deadline = time.monotonic() + _EMPTY_S
    for root in _hierarchies():
        while (root / name).is_dir():
            try:
                _remove(root / name)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _remove(folder: Path) -> None:
    for inner, _, _ in os.walk(folder, topdown=False):
        for pid in (Path(inner) / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        Path(inner).rmdir()


def _hierarchies() -> list[Path]:
    if is_v2():
        return [_ROOT]
    return [path for path in _ROOT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]
