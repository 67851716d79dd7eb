"""Locust as a child process: started with a plan, given the waits that the observer found, ended when all is done.

Owns the process and the socket between them. What the load does is `loadtest.locustfile`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeio.clock import SystemClock
from loadtest.access import CONTEXT_VARIABLE
from loadtest.bridge import VARIABLE, CountMessage, FromLocust, Notice, Started, StopMessage, Waits
from loadtest.plan import LoadPlan, encode
from ringleader.testing.process import Process, start_process

_START_S: Final = 60.0
_END_S: Final = 60.0
_LEFT: Final = ("locust.json", "locust_failures.csv")
"""What locust leaves and is read."""
_ERRORS: Final = 5
"""Different errors that the report names."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FromLocust).decode


class LoadFailed(Exception):
    """Locust did not start, or ended before it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocustOptions:
    """How locust is started. *processes* 0: one process; *workers*: how many join from elsewhere."""

    out: Path
    kubeconfig: str = ""
    context: str = ""
    processes: int = 0
    workers: int = 0
    web_port: int = 0
    """Port of locust's web page on 127.0.0.1; 0: no page."""

    def acting_as(self, kubeconfig: str, context: str) -> LocustOptions:
        """The same, with another account; an empty *kubeconfig* is the environment's."""
        return replace(self, kubeconfig=kubeconfig, context=context)

    def command(self, plan: LoadPlan) -> list[str]:
        locustfile = str(Path(__file__).with_name("locustfile.py"))
        command = [sys.executable, "-m", "locust", "-f", locustfile, "--plan", encode(plan)]
        command += ["--csv", str(self.out / "locust"), "--html", str(self.out / "locust.html")]
        command += ["--json-file", str(self.out / "locust"), "--stop-timeout", "5"]
        command += ["--loglevel", "WARNING", "--exit-code-on-error", "0"]
        if self.web_port:
            command += ["--autostart", "--autoquit", "0", "--web-host", "127.0.0.1"]
            command += ["--web-port", str(self.web_port)]
        else:
            command += ["--headless", "--only-summary"]
        if self.workers:
            command += ["--master", "--expect-workers", str(self.workers)]
        elif self.processes:
            command += ["--processes", str(self.processes)]
        return command

    @property
    def environment(self) -> Mapping[str, str]:
        found = {CONTEXT_VARIABLE: self.context}
        return found | ({"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {})


@dataclass(slots=True)
class LoadSeen:
    """What locust reported so far. Instants are CLOCK_BOOTTIME."""

    started_at: float = 0.0
    counts: list[CountMessage] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class Locust:
    """The running load."""

    def __init__(self, process: Process, log: Path, out: Path) -> None:
        self.seen = LoadSeen()
        self.process = process
        self._log = log
        self._out = out
        self._writer: asyncio.StreamWriter | None = None
        self._started = asyncio.Event()
        self._ended = asyncio.create_task(process.wait(), name="locust")

    @property
    def is_running(self) -> bool:
        return not self._ended.done()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take locust's lines until it is gone."""
        self._writer = writer
        async for line in reader:
            match _decode(line):
                case Started(at=at):
                    self.seen.started_at = at
                    self._started.set()
                case CountMessage() as count:
                    self.seen.counts.append(count)
                case Notice(text=text):
                    self.seen.notices.append(text)

    async def wait_started(self, *, within_s: float = _START_S) -> float:
        """Wait for the load's first moment and give it. Raises: LoadFailed."""
        waiting = asyncio.create_task(self._started.wait(), name="start of locust")
        await asyncio.wait({waiting, self._ended}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._started.is_set():
            what = (
                f"locust did not start within {within_s:g} s" if self.is_running else "locust ended at once"
            )
            raise LoadFailed(f"{what}: {self._last_line()}")
        return self.seen.started_at

    def check(self) -> None:
        """Raises: LoadFailed if locust has ended."""
        if not self.is_running:
            code = self._ended.result()
            raise LoadFailed(f"locust ended in the middle of the load (exit {code}): {self._last_line()}")

    def add(self, waits: list[tuple[str, float]]) -> None:
        """Put *waits* (name, milliseconds) into locust's statistics."""
        if waits and self._writer is not None and not self._writer.is_closing():
            self._writer.write(_encode(Waits(waits)) + b"\n")

    async def finish(self) -> dict[str, dict[str, Any]]:
        """End locust and give its statistics by name. Raises: LoadFailed."""
        self.check()
        if self._writer is not None:
            self._writer.write(_encode(StopMessage()) + b"\n")
        try:
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            raise LoadFailed(f"locust did not end within {_END_S:g} s: {self._last_line()}") from None
        try:
            rows = msgspec.json.decode((self._out / _LEFT[0]).read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise LoadFailed(f"locust left no statistics ({error}): {self._last_line()}") from None
        return {str(row["name"]): row for row in rows}

    def errors(self) -> list[str]:
        """The most frequent errors of the load's requests, a sentence each, once locust has ended."""
        with contextlib.suppress(OSError), (self._out / _LEFT[1]).open(newline="") as file:
            rows = [(int(row["Occurrences"]), row["Name"], row["Error"]) for row in csv.DictReader(file)]
            return [
                f"{count} x {name}: {error}" for count, name, error in sorted(rows, reverse=True)[:_ERRORS]
            ]
        return []

    async def end(self) -> None:
        """End the process, whatever it does."""
        if self.is_running:
            self.process.terminate()
            await asyncio.wait({self._ended}, timeout=5.0)
        if self.is_running:
            self.process.kill()
        await self._ended
        if self._writer is not None:
            self._writer.close()

    def _last_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"see {self._log}"
        return f"see {self._log}"


@asynccontextmanager
async def start_locust(plan: LoadPlan, options: LocustOptions) -> AsyncIterator[Locust]:
    """Locust with *plan*; its process is gone when the block ends."""
    log = options.out / "locust.log"
    for left in (log, *(options.out / name for name in _LEFT)):
        left.unlink(missing_ok=True)
    connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    with tempfile.TemporaryDirectory(prefix="ringleader-") as folder:
        path = f"{folder}/locust"  # a socket's path has 107 bytes at most; that of the report may have more
        server = await asyncio.start_unix_server(lambda r, w: connected.put_nowait((r, w)), path)
        async with server, asyncio.TaskGroup() as tasks:
            process = await start_process(
                options.command(plan),
                name="locust",
                log=log,
                environment={**options.environment, VARIABLE: path, "PYTHONPATH": _python_path()},
                clock=SystemClock(),
            )
            locust = Locust(process, log, options.out)

            async def serve() -> None:
                await locust.serve(*await connected.get())

            serving = tasks.create_task(serve(), name="lines of locust")
            try:
                yield locust
            finally:
                await locust.end()
                serving.cancel()


def _python_path() -> str:
    """Where locust's process finds this package: as we do, also from a checkout that is not installed."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
