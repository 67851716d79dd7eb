"""The measured programs: the runtime in its forms and its peers; their command lines, reports and processes.

The writing side of a report is `tally` and `peer/main.go`. All clocks are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks.measuring.observations import NotSeen
from benchmarks.measuring.processes import PeakMemory, Running, start
from benchmarks.measuring.testbed import Testbed
from devcluster.real.binaries import BinariesMissing, ensure_binaries
from devcluster.real.build_progress import BuildProgress
from devcluster.real.recipes import Recipe

GO_PROGRAM: Final = "controller-runtime-peer"
PEER: Final = Path(__file__).with_name("peer")
START_WITHIN_S: Final = 600.0
"""Of one start."""
_POLL_S: Final = 0.05
_PYTHON: Final = (sys.executable, "-P", "-m")
_numbers = count(1)


# -- command lines ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The objects that a program is to load, and the file for its report."""

    kubeconfig: Path
    namespace: str
    objects: int
    report: Path


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that takes part, unless *why_not* keeps it out."""

    key: str
    name: str
    command: Callable[[Order], list[str]]
    why_not: str = ""


def ours(order: Order, *flags: str) -> list[str]:
    """The command line of the program on `shard_controller`, with *flags*."""
    return [
        *(*_PYTHON, "benchmarks.runtime.ours", "--kubeconfig", str(order.kubeconfig)),
        *("--namespace", order.namespace, "--objects", str(order.objects)),
        *("--report", str(order.report), *flags),
    ]


def our_forms() -> list[Candidate]:
    """The runtime with each form of storage."""

    def form(name: str, *flags: str) -> Candidate:
        title = "metadata only" if name == "metadata" else name
        return Candidate(
            f"ours-{name}", f"ringleader, {title}", lambda order: ours(order, "--stored", name, *flags)
        )

    return [form("raw"), form("compressed"), form("metadata", "--model", "untouched")]


def kopf() -> Candidate:
    """kopf, where it is installed."""
    why = "" if importlib.util.find_spec("kopf") else "kopf is not installed; `make setup` brings it"
    return Candidate("kopf", "kopf", _plain("benchmarks.runtime.with_kopf"), why)


def kubernetes_informer() -> Candidate:
    """The informer of the `kubernetes` package, which is a dependency anyhow."""
    why = "this version of the kubernetes package has no informer; install version 37 or newer"
    return Candidate(
        "kubernetes",
        "kubernetes SharedInformer",
        _plain("benchmarks.runtime.with_kubernetes"),
        "" if importlib.util.find_spec("kubernetes.informer") else why,
    )


def controller_runtime(progress: BuildProgress) -> list[Candidate]:
    """controller-runtime, with full objects and with metadata only; built once, if Go is there (minutes)."""
    path, why = Path(GO_PROGRAM), ""
    try:
        path = ensure_binaries([GO_PROGRAM], go_recipe(), progress=progress)[GO_PROGRAM]
    except BinariesMissing as missing:
        why = f"{missing.reason}; {missing.remedy}"

    def command(order: Order) -> list[str]:
        return [
            *(str(path), "--kubeconfig", str(order.kubeconfig), "--namespace", order.namespace),
            *("--objects", str(order.objects), "--report", str(order.report)),
        ]

    return [
        Candidate("go", "controller-runtime", command, why),
        Candidate(
            "go-metadata",
            "controller-runtime, metadata only",
            lambda order: [*command(order), "--metadata"],
            why,
        ),
    ]


def go_recipe(module: Path = PEER) -> Recipe:
    """Recipe of the peer in Go; its version follows its source, so that a changed one is built anew."""
    source = hashlib.sha256((module / "main.go").read_bytes()).hexdigest()[:8]
    return Recipe(
        name=GO_PROGRAM,
        version=f"{go_version()}-{source}",
        module=module,
        packages={GO_PROGRAM: "."},
        linker_flags="-s -w",
    )


def go_version() -> str:
    """The pinned version of controller-runtime."""
    found = re.search(r"sigs\.k8s\.io/controller-runtime v(\S+)", (PEER / "go.mod").read_text())
    if found is None:
        raise ValueError(f"{PEER / 'go.mod'} does not require controller-runtime")
    return found[1]


def _plain(module: str) -> Callable[[Order], list[str]]:
    """A peer in Python with four positional arguments."""
    return lambda order: [
        *(*_PYTHON, module, str(order.kubeconfig), order.namespace),
        *(str(order.objects), str(order.report)),
    ]


# -- reports ------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, frozen=True, tag_field="e", tag=str.lower):
    pass


class _Counted(_Record, frozen=True):
    count: int
    first_at: float
    """Begin of the first of them."""
    at: float
    """Begin of the last of them."""
    cpu_s: float
    """CPU that the process used in between, all threads together."""

    @property
    def per_s(self) -> float:
        return self.count / (self.at - self.first_at) if self.at > self.first_at else 0.0

    @property
    def per_core_s(self) -> float:
        """For each second of CPU: the rate of one core."""
        return self.count / self.cpu_s if self.cpu_s > 0 else 0.0


class Loaded(_Counted, frozen=True):
    """Every object has been cached and reconciled once."""


class Repeated(_Counted, frozen=True):
    """Every object has been reconciled again so many times."""


class Ticked(_Record, frozen=True):
    """The event loop came to its first tick after the load; *worst_ms* is the latest that any tick came until then."""

    at: float
    worst_ms: float
    ticks: int


class Began(_Record, frozen=True):
    """A reconcile began at *at* with the object in *version*; *sent_at* is in objects of the list server."""

    at: float
    version: str
    sent_at: float = 0.0


Record = Loaded | Repeated | Ticked | Began
R = TypeVar("R", Loaded, Repeated, Ticked, Began)
_decoder = msgspec.json.Decoder(Record)


class Records:
    """One report, read further each time; a line that is not whole yet waits for the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Record] = []
        self._position = 0

    def of(self, kind: type[R]) -> list[R]:
        """Those of *kind*, so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._position)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._position += len(whole)
            self.all += [_decoder.decode(line) for line in whole.splitlines()]
        return [record for record in self.all if isinstance(record, kind)]


# -- processes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """One running program. *started_at* is just before the process was made."""

    running: Running
    records: Records
    started_at: float

    async def wait_for(self, kind: type[R], *, within_s: float = START_WITHIN_S) -> R:
        """Its first record of *kind*. Raises: NotSeen, Ended."""
        return (await self.wait_for_many(kind, 1, within_s=within_s))[0]

    async def wait_for_many(self, kind: type[R], count: int, *, within_s: float) -> list[R]:
        """Its records of *kind*, once there are *count*. Raises: NotSeen, Ended."""
        ends_at = time.monotonic() + within_s
        while len(found := self.records.of(kind)) < count:
            self.running.check()
            if time.monotonic() > ends_at:
                name = self.running.log.stem
                raise NotSeen(f"{name} reported {len(found)} of {count} within {within_s:g} s")
            await asyncio.sleep(_POLL_S)
        return found

    def peak_mb(self) -> float:
        """Peak memory of the process and its children that run now, in millions of bytes."""
        memory = PeakMemory(self.running.pid)
        memory.sample()
        return memory.mb


@asynccontextmanager
async def measured(
    testbed: Testbed,
    stem: str,
    command: Callable[[Order], list[str]],
    *,
    objects: int = 0,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Program]:
    """The program at work on the stock (or *objects* elsewhere); it is killed when the block ends."""
    name = f"{stem}-{next(_numbers)}"
    report = testbed.directory / f"{name}.report"
    order = Order(
        kubeconfig=kubeconfig or testbed.replica.kubeconfig,
        namespace=testbed.namespace,
        objects=objects or len(testbed.stock.names),
        report=report,
    )
    started_at = time.monotonic()
    running = await start(lambda _: command(order), testbed.directory, name=name, clock=testbed.clock)
    try:
        yield Program(running, Records(report), started_at)
    finally:
        await running.kill()
