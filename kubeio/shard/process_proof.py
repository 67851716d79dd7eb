"""Identity of this process, and proof that an older one ended; a new shard of a member relies on it (protocol, 4).

Owns the text of the annotation `D/process` and the marks that children of this process carry. The proof is for Linux
only; elsewhere nothing is ever proved, and an old Lease expires by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PROC = Path("/proc")
MARK = "RINGLEADER_LIFE"
"""Environment variable that names the shard; programs started by it inherit the variable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process: boot, PID namespace, pid and start time are never the same for two."""

    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    pod: str = ""

    def encode(self) -> str:
        """The annotation `D/process`."""
        return f"boot={self.boot_id} pidns={self.pid_namespace} pid={self.pid} start={self.started}"


def decode(text: str, *, pod: str) -> Identity | None:
    """The identity that an annotation shows, or None if it was not written by us."""
    fields = dict(part.partition("=")[::2] for part in text.split())
    try:
        return Identity(fields["boot"], fields["pidns"], int(fields["pid"]), int(fields["start"]), pod)
    except (KeyError, ValueError):
        return None


class ProcessTable(Protocol):
    def is_running(self, pid: int, started: int) -> bool: ...
    def has_children_of(self, shard: str) -> bool: ...
    def hides_some(self) -> bool: ...


def proves_end(old: Identity, *, shard: str, mine: Identity, processes: ProcessTable) -> bool:
    """Whether the process *old*, of the shard *shard*, is known to have ended, and its children with it.

    Either its container was started anew (same pod and container, another PID namespace: the old one is gone
    with all that lived in it), or it is missing among the processes of this very boot and PID namespace. A namespace
    or boot that is not known proves nothing, nor does a table that hides processes.
    """
    if not (old.pid_namespace and mine.pid_namespace):
        return False
    if old.pod and old.pod == mine.pod and old.pid_namespace != mine.pid_namespace:
        return True
    if not old.boot_id or (old.boot_id, old.pid_namespace) != (mine.boot_id, mine.pid_namespace):
        return False
    if processes.hides_some():
        return False
    return not processes.is_running(old.pid, old.started) and not processes.has_children_of(shard)


def this_process() -> Identity:
    """The identity of the calling process. Pod and container come from POD_UID and CONTAINER_NAME, both or none:

    without the container's name, two containers of one pod would look like one.
    """
    pod_uid, container = os.environ.get("POD_UID", ""), os.environ.get("CONTAINER_NAME", "")
    pod = f"{pod_uid}/{container}" if pod_uid and container else ""
    started = _stat(os.getpid())
    return Identity(_boot_id(), _pid_namespace(), os.getpid(), started[2] if started else 0, pod)


def this_pod(member: str) -> str:
    """`NAMESPACE/NAME` of the pod that this process runs in; empty without POD_NAMESPACE.

    A pod without POD_NAME is called as its *member*, which is the host's name unless something else was given.
    """
    namespace = os.environ.get("POD_NAMESPACE", "")
    return f"{namespace}/{os.environ.get('POD_NAME', member)}" if namespace else ""


def mark_children(shard: str) -> None:
    """Mark future children as those of *shard*: programs by their environment, forks by their name."""
    os.environ[MARK] = shard

    def name_fork() -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(_fork_name(shard))

    os.register_at_fork(after_in_child=name_fork)


class LinuxProcesses:
    """The processes of this PID namespace, read from /proc."""

    def is_running(self, pid: int, started: int) -> bool:
        """Whether the process that began at *started* still has a thread; a zombie without threads has ended."""
        stat = _stat(pid)
        if stat is None:
            return False
        state, threads, began = stat
        return began == started and (state not in "ZX" or threads > 1)

    def has_children_of(self, shard: str) -> bool:
        variable = f"{MARK}={shard}".encode()
        return any(
            variable in _read(entry / "environ").split(b"\0")
            or _read(entry / "comm").strip() == _fork_name(shard).encode()
            for entry in _processes()
            if int(entry.name) != os.getpid()
        )

    def hides_some(self) -> bool:
        """Whether /proc may leave out processes of other users (mount option hidepid), or cannot be judged."""
        options = mount_options(_read(PROC / "self/mounts").decode(errors="replace"), point=str(PROC))
        hidden = {option.partition("=")[2] for option in options if option.startswith("hidepid=")}
        return not options or not hidden <= {"0", "off"}


def mount_options(mounts: str, *, point: str) -> tuple[str, ...]:
    """The options of what is mounted last at *point*, from the text of /proc/self/mounts; none if nothing is."""
    lines = [line.split() for line in mounts.splitlines()]
    found = [fields[3].split(",") for fields in lines if len(fields) > 3 and fields[1] == point]
    return tuple(found[-1]) if found else ()


def _fork_name(shard: str) -> str:
    return f"life-{shard[-8:]}"


def _processes() -> Iterable[Path]:
    return (entry for entry in PROC.iterdir() if entry.name.isdigit()) if PROC.is_dir() else ()


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, number of threads and start time (ticks since boot) of *pid*."""
    text = _read(PROC / str(pid) / "stat").decode(errors="replace")
    fields = text.rpartition(")")[2].split()
    return (fields[0], int(fields[17]), int(fields[19])) if len(fields) > 19 else None


def _boot_id() -> str:
    return _read(PROC / "sys/kernel/random/boot_id").decode().strip()


def _pid_namespace() -> str:
    try:
        return str((PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
