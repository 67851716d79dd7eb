"""When each replica's container ran, as this machine's kernel sees it: pods are processes of it."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kubeio.clock import Clock
from ringleader.testing.availability import Span
from ringleader.testing.journal import Life, Record

_EVERY_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))


@dataclass(slots=True)
class Container:
    """The first process of a container; *end* is infinite while it runs."""

    pid: int
    pod: str
    node: str
    begin: float
    end: float = math.inf


class ContainerWatch:
    """Sees containers of a cluster begin and end, by its cgroup; times are CLOCK_BOOTTIME, to a tenth of a second."""

    def __init__(self, cgroup: str, *, clock: Clock) -> None:
        self._root = next(root / cgroup for root in _ROOTS if (root / cgroup).is_dir())
        self._clock = clock
        self._found: dict[tuple[int, float], Container] = {}
        self._pauses: dict[str, list[Span]] = {}

    async def run(self) -> None:
        """Look ten times a second, until cancelled."""
        while True:
            self._look()
            await asyncio.sleep(_EVERY_S)

    def running(self, pod: str) -> list[Container]:
        return [each for each in self._found.values() if each.pod == pod and each.end == math.inf]

    def kill(self, pod: str) -> None:
        """SIGKILL the container of *pod*, as the kernel does when memory ends."""
        (container,) = self.running(pod)
        os.kill(container.pid, signal.SIGKILL)

    def pause(self, node: str) -> None:
        """From now on containers of *node* run without effect: it is cut off."""
        self._pauses.setdefault(node, []).append((self._clock.now(), math.inf))

    def resume(self, node: str) -> None:
        since, _ = self._pauses[node].pop()
        self._pauses[node].append((since, self._clock.now()))

    def spans(self) -> dict[int, list[list[Span]]]:
        """When each container could work, by the pid of its first process."""
        found: defaultdict[int, list[list[Span]]] = defaultdict(list)
        for each in self._found.values():
            found[each.pid].append(list(self._spans(each)))
        return found

    def with_pids(self, records: Iterable[Record]) -> list[Record]:
        """*records* with this machine's pids: in its own container every process is number 1."""
        return [
            msgspec.structs.replace(record, pid=self._pid_of(record)) if isinstance(record, Life) else record
            for record in records
        ]

    def _pid_of(self, life: Life) -> int:
        lives = [
            each.pid
            for each in self._found.values()
            if each.pod == life.member and each.begin <= life.t <= each.end
        ]
        assert len(lives) == 1, f"{len(lives)} containers of {life.member} ran at {life.t}"
        return lives[0]

    def _spans(self, container: Container) -> Iterable[Span]:
        begin = container.begin
        for since, until in self._pauses.get(container.node, ()):
            if begin < min(since, container.end):
                yield begin, min(since, container.end)
            begin = max(begin, until)
        if begin < container.end:
            yield begin, container.end

    def _look(self) -> None:
        there = {}
        for folder, _, files in os.walk(self._root):
            if "cgroup.procs" not in files:
                continue
            for pid in _pids(Path(folder)):
                if (begin := _begin(pid)) is not None:
                    there[pid, begin] = Path(folder).relative_to(self._root).parts[0]
        for key, node in there.items():
            if key not in self._found and (pod := _replica(key[0])):
                self._found[key] = Container(key[0], pod, node, key[1])
        for key, container in self._found.items():
            if key not in there and container.end == math.inf:
                container.end = self._clock.now()


def _pids(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _begin(pid: int) -> float | None:
    """When process *pid* was started; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) / _TICKS


def _replica(pid: int) -> str:
    """The pod of which *pid* is the first process, if it is a replica; empty otherwise."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        inside = Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].splitlines()[0].split()[-1]
    except OSError:
        return ""
    names = [entry.partition(b"=")[2] for entry in environment if entry.startswith(b"POD_NAME=")]
    return names[0].decode() if names and inside == "1" and b"shard_controller" in command else ""
