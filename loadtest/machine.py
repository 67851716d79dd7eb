"""The machine of a measurement: hardware and load, memory and CPU time of processes. Read from /proc."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Machine(msgspec.Struct, frozen=True):
    """Hardware and kernel."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    load_before: float
    """Processes that wanted a core in the minute before the run: above 0.5 the figures are not the machine's."""


def read_machine() -> Machine:
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_gib=round(int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20, 1),
        kernel=platform.release(),
        load_before=round(os.getloadavg()[0], 2),
    )


def family(pid: int) -> list[int]:
    """*pid* and all its descendants that run now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def memory_kb(pid: int, field: str) -> int:
    """`VmRSS` or `VmHWM` (its peak) of one process; 0 once it has ended."""
    return int((_field(f"/proc/{pid}/status", field) or "0 kB").split()[0])


def rss_mb(pid: int) -> float:
    """Resident memory of *pid* and its descendants now, in millions of bytes."""
    return sum(memory_kb(member, "VmRSS") for member in family(pid)) * 1024 / 1e6


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU that *pids* have used so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def _field(path: str, name: str) -> str:
    """The value of the line *name* of a file in /proc; empty if there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
