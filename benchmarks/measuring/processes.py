"""Measured programs as processes: their start and end, their metrics, their memory and CPU time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from kubeio.clock import Clock
from loadtest.machine import cpu_s, family, memory_kb
from ringleader.testing.process import Process, start_process

_SAMPLE_S: Final = 0.5
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Ended(Exception):
    """A process ended unasked."""


class Running:
    """A process between its start and its end, with the port of its probes."""

    def __init__(self, process: Process, *, log: Path, port_file: Path) -> None:
        self.process = process
        self.log = log
        self._port_file = port_file

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.child.is_running

    async def terminate(self, *, grace_s: float = 30.0) -> None:
        """SIGTERM, SIGKILL after *grace_s*, and wait until it is gone."""
        self.process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.process.child.wait()
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.is_running:
            self.process.kill()
        await self.process.child.wait()

    def check(self) -> None:
        """Raises: Ended if it has."""
        if not self.is_running:
            raise Ended(f"{self.log.stem} ended: {self.last_words()}")

    async def metric(self, line: str) -> float | None:
        """The value of the metric whose line begins with *line*; None while there is none."""
        self.check()
        if not self._port_file.exists():
            return None
        url = f"http://127.0.0.1:{self._port_file.read_text().strip()}/metrics"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return None
        return next((float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if row.startswith(line)), None)

    def last_words(self) -> str:
        """The last line with letters that it printed."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        worded = (line.strip() for line in reversed(lines) if any(char.isalpha() for char in line))
        return next(worded, "it printed nothing")[:300]


@asynccontextmanager
async def running(
    command: Callable[[Path], Sequence[str]], directory: Path, *, name: str, clock: Clock
) -> AsyncIterator[Running]:
    """A process that ends with the block; *command* gets the file for the port of its probes."""
    started = await start(command, directory, name=name, clock=clock)
    try:
        yield started
    finally:
        if started.is_running:
            await started.terminate()


async def start(
    command: Callable[[Path], Sequence[str]], directory: Path, *, name: str, clock: Clock
) -> Running:
    """A process that its caller ends; it ends with this process in any case."""
    ports, log = directory / f"{name}.port", directory / f"{name}.log"
    ports.unlink(missing_ok=True)
    process = await start_process(command(ports), name=name, log=log, environment={}, clock=clock)
    return Running(process, log=log, port_file=ports)


# -- what the kernel counts ---------------------------------------------------------------------------------


class Cores:
    """Cores that *pids* use, on average since this was made."""

    def __init__(self, pids: Iterable[int], clock: Clock) -> None:
        self._pids = list(pids)
        self._clock = clock
        self._began_at = clock.now()
        self._used_s = cpu_s(self._pids)

    def used(self) -> float:
        took_s = self._clock.now() - self._began_at
        return round((cpu_s(self._pids) - self._used_s) / took_s, 3) if took_s > 0 else 0.0

    def ms_per(self, count: int) -> float:
        """CPU milliseconds for each of *count* things done meanwhile."""
        return round(1000 * (cpu_s(self._pids) - self._used_s) / max(1, count), 3)


class ForeignWork:
    """Cores of the machine that other programs have used since this was made."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._busy_s = _busy_s()
        self._ours_s = _ours_s()

    @property
    def lasted_s(self) -> float:
        return time.monotonic() - self._began_at

    def busy_s(self) -> float:
        """CPU seconds of the whole machine."""
        return _busy_s() - self._busy_s

    def cores(self) -> float:
        foreign_s = self.busy_s() - (_ours_s() - self._ours_s)
        return round(max(0.0, foreign_s) / self.lasted_s, 2)


def _busy_s() -> float:
    """CPU seconds of the machine so far; 0 without /proc."""
    with contextlib.suppress(OSError):
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S  # without idle and iowait
    return 0.0


def _ours_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of its living descendants."""
    return sum(os.times()[:4]) + cpu_s(pid for pid in family(os.getpid()) if pid != os.getpid())


class PeakMemory:
    """The peak resident memory of one process and its descendants: the sum of each one's own peak.

    The sum of peaks is never below the peak of the sum. Descendants that live for less than half a second may
    be missed.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks_kb: dict[int, int] = {}

    @property
    def mb(self) -> float:
        """In millions of bytes."""
        return sum(self._peaks_kb.values()) * 1024 / 1e6

    @property
    def processes(self) -> int:
        return len(self._peaks_kb)

    def sample(self) -> None:
        for pid in family(self._pid):
            if peak := memory_kb(pid, "VmHWM"):
                self._peaks_kb[pid] = max(peak, self._peaks_kb.get(pid, 0))

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(_SAMPLE_S)


class Peaks:
    """Peak memory of every sharder process that ran, by the row in which it did."""

    def __init__(self) -> None:
        self.by_row: dict[str, float] = {}
        self.processes = 1

    def note(self, row: str, memory: PeakMemory) -> None:
        self.by_row[row] = max(memory.mb, self.by_row.get(row, 0.0))
        self.processes = max(memory.processes, self.processes)
