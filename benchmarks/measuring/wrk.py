"""The limit: the rate of a C load generator (wrk) with the very patches that a measured program sends.

Owns the Lua script, the files of requests and the run of wrk. One watch counts the writes of wrk and of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import statistics
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measuring.observations import NotSeen, ObjectChange, OwnerChange
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.report import round_off
from benchmarks.measuring.testbed import Testbed
from kubeio.errors import InputError
from loadtest.progress import Console

PER_S_AT_MOST: Final = 2_000
"""Patches made ready for each second; a faster server is done sooner."""
_REFUSED_AT_MOST: Final = 0.02
THREADS: Final = 2
"""At most; one connection has one thread."""
FILLER: Final = "/livez"
"""Path of the requests of a thread that has used up its patches, until it is stopped."""

SCRIPT: Final = """
local threads = 0

function setup(thread)
   thread:set("number", threads)
   threads = threads + 1
end

function init(args)
   lines = assert(io.open(args[1] .. "." .. number, "r")):lines()
   headers = {}
   for line in io.lines(args[1] .. ".headers") do
      local name, value = line:match("^(.-): (.*)$")
      headers[name] = value
   end
end

function request()
   local line = lines and lines()
   local path, body = (line or ""):match("^(.-)\\t(.*)$")
   if not path then
      if not line then lines = nil end
      return wrk.format("GET", "FILLER", headers)
   end
   return wrk.format("PATCH", path, headers, body)
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.stderr:write(string.format(
      '{"requests":%d,"took_us":%d,"bad_statuses":%d,"broken":%d,"p50_us":%d,"p99_us":%d}',
      summary.requests, summary.duration, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50), latency:percentile(99)))
end
""".replace("FILLER", FILLER)


class Tally(msgspec.Struct, frozen=True):
    """Counts of wrk itself."""

    requests: int
    took_us: int
    bad_statuses: int
    broken: int
    p50_us: int
    p99_us: int


Changes = Sequence[OwnerChange | ObjectChange]


class WrkFailed(Exception):
    """wrk did not run, or many of its requests were refused."""


@dataclass(frozen=True, slots=True)
class Request:
    """One patch: the path with its query, and the body on one line."""

    path: str
    body: bytes


def find_wrk() -> str:
    """Path of the program. Raises: InputError naming the package that has it."""
    found = shutil.which("wrk")
    if found is None:
        raise InputError(
            "wrk",
            "",
            "is not installed: the limit is what this C load generator reaches",
            "install the package `wrk` (Debian and Ubuntu: apt-get install wrk; Fedora: dnf install wrk)",
        )
    return found


class Wrk:
    """One run of wrk: `tally` is known when it has ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.tally: Tally | None = None

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def end(self) -> Tally:
        """Stop it, if it still runs, and read its count. Raises: WrkFailed."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
        out, errors = await self._process.communicate()
        start = errors.rfind(b"{")
        try:
            self.tally = msgspec.json.decode(errors[start:], type=Tally)
        except (msgspec.DecodeError, ValueError):
            said = (errors or out).decode(errors="replace").strip()[-300:]
            raise WrkFailed(f"wrk ended with {self._process.returncode}: {said}") from None
        return self.tally


@asynccontextmanager
async def sending(
    requests: Iterable[Request], directory: Path, load: Load, *, url: str
) -> AsyncIterator[Wrk]:
    """wrk at work on *requests*, each sent once; it is gone when the block ends."""
    program = find_wrk()
    stem, threads = directory / "patches", min(THREADS, load.connections)
    _write(stem, requests, load.headers, threads)
    process = await asyncio.create_subprocess_exec(
        *(program, "-t", str(threads), "-c", str(load.connections), "-d", f"{load.at_most_s:.0f}s"),
        *("--timeout", "30s", "-s", str(stem.with_suffix(".lua")), url, "--", str(stem)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Wrk(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _write(stem: Path, requests: Iterable[Request], headers: Mapping[str, str], threads: int) -> None:
    """The script, the headers, and one file of requests for each thread."""
    stem.with_suffix(".lua").write_text(SCRIPT)
    header_file = stem.with_suffix(".headers")
    header_file.touch(mode=0o600)  # it holds a token
    header_file.write_text("".join(f"{name}: {value}\n" for name, value in headers.items()))
    shares: list[list[bytes]] = [[] for _ in range(threads)]
    for index, request in enumerate(requests):
        shares[index % threads].append(request.path.encode() + b"\t" + request.body + b"\n")
    for number, share in enumerate(shares):
        # wrk asks the first thread for one request that it never sends: an empty line is given away
        stem.with_suffix(f".{number}").write_bytes(b"\n" + b"".join(share))


# -- the limit ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes of a program, seen by the watch at *instants*; it is measured from *since* on.

    *cores* and *cpu_ms* (for each write) are by process; *tally* is wrk's own.
    """

    since: float
    instants: Sequence[float]
    cores: Mapping[str, float] = field(default_factory=dict)
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    tally: Tally | None = None

    @property
    def per_s(self) -> float:
        """All of them, over the time from *since* to the last."""
        return len(self.instants) / (self.instants[-1] - self.since)

    @property
    def per_s_while_writing(self) -> float:
        """The same from the first write to the last: the rate of wrk."""
        took_s = self.instants[-1] - self.instants[0]
        return (len(self.instants) - 1) / took_s if took_s > 0 else 0.0

    def details(self) -> dict[str, object]:
        found: dict[str, object] = {
            "per_s": round_off(self.per_s),
            "per_s_from_first_write": round_off(self.per_s_while_writing),
            "writes": len(self.instants),
            "to_first_write_s": round(self.instants[0] - self.since, 2),
            "to_last_write_s": round(self.instants[-1] - self.since, 2),
            "cores": dict(self.cores),
            "cpu_ms_per_write": dict(self.cpu_ms),
        }
        if self.tally is not None:
            latencies = {"p50_ms": self.tally.p50_us / 1000, "p99_ms": self.tally.p99_us / 1000}
            found |= {**latencies, "refused": self.tally.bad_statuses}
        return found


def writes_of(since: float, changes: Changes, cores: Mapping[str, Cores]) -> Writes:
    """The writes that made *changes*, with the CPU that *cores* have counted. Raises: NotSeen."""
    if len(changes) < 2 or changes[-1].at <= changes[0].at:
        raise NotSeen(f"only {len(changes)} writes were seen")
    used = {process: one.used() for process, one in cores.items()}
    each_ms = {process: one.ms_per(len(changes)) for process, one in cores.items()}
    return Writes(since, [change.at for change in changes], used, each_ms)


def mean_limit(limits: Sequence[Writes]) -> float:
    """The limit: the mean rate of several runs of wrk."""
    return statistics.fmean(one.per_s_while_writing for one in limits)


@dataclass(frozen=True, slots=True)
class Load:
    """Settings of wrk: *headers* of every request, *connections*, and the length of the run."""

    headers: Mapping[str, str]
    connections: int
    at_most_s: float


async def reach_limit(
    requests: Sequence[Request],
    load: Load,
    *,
    testbed: Testbed,
    changes: Callable[[], Changes],
    console: Console,
) -> Writes:
    """Let wrk send every request once; *changes* that the testbed's watch has seen since.

    The watch counts the measured program's writes as well: both are counted alike. Raises: WrkFailed, NotSeen.
    """
    cores = {"server": Cores(testbed.plane.pids, testbed.clock)}
    async with sending(requests, testbed.directory, load, url=testbed.plane.url) as wrk:
        with console.counting("wrk, with the same patches", len(requests)) as tick:
            shown = 0
            while wrk.is_running and len(changes()) < len(requests):
                await asyncio.sleep(0.05)
                tick(len(changes()) - shown)
                shown = len(changes())
        found = list(changes())
        known = writes_of(found[0].at if found else 0.0, found, cores)
        tally = await wrk.end()
    await testbed.stock.catch_up()
    instants = [change.at for change in changes()]
    if tally.bad_statuses > _REFUSED_AT_MOST * len(instants):
        raise WrkFailed(f"the server refused {tally.bad_statuses} of {tally.requests} requests of wrk")
    return replace(known, instants=instants, tally=tally)
