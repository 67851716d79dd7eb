"""One run of a benchmark on a control plane: flags, rows, figures, progress, files and the exit code.

A failure of a measured program becomes lines of the table that say so, and the next row begins. A fault of the
benchmark ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measuring.observations import NotSeen
from benchmarks.measuring.processes import Ended, ForeignWork
from benchmarks.measuring.report import Figure, Goal, Report, Row, Verdict
from benchmarks.measuring.wrk import WrkFailed, find_wrk
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, RealPlane
from kubeio.errors import InputError, KubeError
from kubeio.program import runtime
from kubeio.rest.client import Client
from loadtest.machine import read_machine
from loadtest.progress import Console

_FAILURES: Final = (NotSeen, Ended, WrkFailed, KubeError, TimeoutError)
_POLL_S: Final = 0.05
STALLS_AFTER_S: Final = 30.0


class Options(argparse.Namespace):
    """The flags that every benchmark has."""

    objects: int
    plane: str
    out: Path
    output: str
    strict: bool
    only: str = ""

    @property
    def is_real(self) -> bool:
        return self.plane == "real"


def make_parser(name: str, description: str | None, *, is_strict: bool = False) -> argparse.ArgumentParser:
    """The common flags of the benchmark *name*; *is_strict* by default."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument(
        "--plane", choices=["real", "embedded"], default="real", help="control plane to measure on"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(f"build/bench-{name}"), help="folder of report and logs"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="what to print")
    parser.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=is_strict,
        help="exit 1 if a goal is missed",
    )
    return parser


def add_rows(parser: argparse.ArgumentParser, rows: Sequence[str]) -> None:
    """The flag `--only`."""

    def known(text: str) -> str:
        for name in filter(str.strip, text.split(",")):
            if name.strip() not in rows:
                raise argparse.ArgumentTypeError(
                    f"{name.strip()!r} is not a row: choose from {', '.join(rows)}"
                )
        return text

    parser.add_argument("--only", type=known, default="", help=f"rows to measure, of {', '.join(rows)}")


def chosen(options: Options, rows: Sequence[str]) -> list[str]:
    """The rows of *rows* that `--only` names (all, if it names none), in their order."""
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    return [row for row in rows if row in only or not only]


def run_benchmark(
    name: str,
    goals: Mapping[str, Goal],
    options: Options,
    measure: Callable[[Run], Awaitable[object]],
    *,
    needs_wrk: bool = False,
) -> int:
    """Let *measure* fill a run; print and save its report.

    The exit code: 0 measured, 1 a line could not be measured (strict: or missed its goal), 2 bad input.
    """
    runtime.configure_logging(format="auto", level="error")
    return runtime.run(_measured(name, goals, options, measure, needs_wrk=needs_wrk))


async def _measured(
    name: str,
    goals: Mapping[str, Goal],
    options: Options,
    measure: Callable[[Run], Awaitable[object]],
    *,
    needs_wrk: bool,
) -> int:
    """Raises: InputError."""
    if needs_wrk:
        find_wrk()
    _make_folder(options.out)
    with tempfile.TemporaryDirectory(prefix="ringleader-bench-") as directory:
        run = Run(name, goals, options, Path(directory))
        try:
            await measure(run)
        except BinariesMissing as missing:
            raise InputError("--plane", "real", missing.reason, missing.remedy) from None
        finally:
            for log in (*run.directory.glob("*.log"), *run.directory.glob("plane/*.log")):
                shutil.copyfile(log, options.out / log.name)
    report = run.report()
    run.console.say(f"written: {report.save(options.out)}")
    if options.output == "json":
        sys.stdout.write(report.encode().decode())
    else:
        report.print()
    return exit_code(report.figures, is_strict=options.strict)


def exit_code(figures: Sequence[Figure], *, is_strict: bool) -> int:
    """1 if a line could not be measured, or, if the run *is_strict*, missed its goal."""
    verdicts = {figure.verdict for figure in figures}
    return int(Verdict.NOT_MEASURED in verdicts or (is_strict and Verdict.MISSED in verdicts))


class Run:
    """Rows and figures of one run, saved after each row."""

    def __init__(self, name: str, goals: Mapping[str, Goal], options: Options, directory: Path) -> None:
        self.directory = directory
        self.console = Console()
        self.versions: dict[str, str] = {}
        self._name = name
        self._goals = goals
        self._options = options
        self._rows: dict[str, Row] = {}
        self._machine = read_machine()
        self._began_at, self._wall, self._foreign = time.monotonic(), datetime.now(UTC), ForeignWork()

    def report(self) -> Report:
        """Everything so far; figures in the order of the goals."""
        found = {one.key: one for row in self._rows.values() for one in row.figures}
        return Report(
            command=" ".join(["python", "-m", f"benchmarks.{self._name}", *sys.argv[1:]]),
            started_at=self._wall.strftime("%Y-%m-%d %H:%M UTC"),
            took_s=round(time.monotonic() - self._began_at, 1),
            plane=self._options.plane,
            objects=self._options.objects,
            machine=self._machine,
            foreign_cores=self._foreign.cores(),
            versions=self.versions,
            rows=list(self._rows.values()),
            figures=[found[key] for key in self._goals if key in found],
        )

    @contextmanager
    def row(self, *keys: str) -> Iterator[None]:
        """The block measures the rows *keys*; lines that a failure leaves out say why."""
        began_at = time.monotonic()
        try:
            yield
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            self.console.say(f"{', '.join(keys)}: not measured: {problem}")
            for key in keys:
                if not self._row(key).took_s:
                    self._fail(key, problem)
        for key in keys:
            self._row(key).took_s = self._row(key).took_s or round(time.monotonic() - began_at, 1)
        self.report().save(self._options.out)

    def figure(self, line: str, value: float | None, how: str = "") -> None:
        """Fill the line *line*; None: it could not be measured, and *how* is the reason."""
        goal = self._goals[line]
        self._add(line, value, goal.judge(value), how)

    def skip(self, line: str, why: str) -> None:
        """Leave out the line *line*, which cannot be had on this machine."""
        self._add(line, None, Verdict.SKIPPED, why)

    def detail(self, row: str, **details: object) -> None:
        """Keep single measurements beside the figures of *row*."""
        self._row(row).details.update(details)

    async def follow(self, what: str, total: int, done: Callable[[], int]) -> None:
        """Wait until *done* gives *total*. Raises: NotSeen when it does not grow for `STALLS_AFTER_S`."""
        reached, grown_at = done(), time.monotonic()
        with self.console.counting(what, total) as tick:
            while reached < total:
                await asyncio.sleep(_POLL_S)
                now_done = done()
                if now_done > reached:
                    tick(now_done - reached)
                    reached, grown_at = now_done, time.monotonic()
                elif time.monotonic() - grown_at > STALLS_AFTER_S:
                    raise NotSeen(f"{what}: {reached} of {total}, and nothing for {STALLS_AFTER_S:g} s")

    async def read_versions(self, plane: ControlPlane, client: Client, *packages: str) -> None:
        """Versions of everything whose speed is in the figures, *packages* that are installed among it."""
        answer = await client.request("GET", "/version")
        self.versions = {
            "ringleader": metadata.version("ringleader"),
            "python": platform.python_version(),
            "apiserver": msgspec.json.decode(answer.body, type=_Version).git_version,
            "wrk": (await _first_line("wrk", "--version")).removeprefix("wrk ").split(" ")[0],
        }
        if isinstance(plane, RealPlane):
            said = await _first_line(str(plane.binary("etcd")), "--version")
            self.versions["etcd"] = said.removeprefix("etcd Version: ")
        installed = {package.metadata["Name"].lower() for package in metadata.distributions()}
        for package in ("uvloop", "httptools", "msgspec", *packages):
            if package in installed:
                self.versions[package] = metadata.version(package)

    def _row(self, key: str) -> Row:
        return self._rows.setdefault(key, Row(key, [], {}))

    def _add(self, line: str, value: float | None, verdict: Verdict, how: str) -> None:
        goal = self._goals[line]
        figure = Figure(line, goal.what, value, goal.unit, str(goal), verdict, how)
        row = self._row(goal.row)
        row.figures = [*(one for one in row.figures if one.key != line), figure]
        wanted = f" ({goal})" if str(goal) else ""
        self.console.say(f"{goal.what}: {figure}{wanted}: {verdict.value}; {how}")

    def _fail(self, key: str, problem: str) -> None:
        row = self._row(key)
        row.problem = problem
        known = {one.key for one in row.figures}
        for line, goal in self._goals.items():
            if goal.row == key and line not in known:
                self.figure(line, None, problem)


def _make_folder(out: Path) -> None:
    """Raises: InputError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise InputError("--out", str(out), problem, "name a folder that can be written to") from None


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def problem_of(error: BaseException) -> str | None:
    """The reason why a measured program failed; None if *error* is a fault of the benchmark."""
    leaves = list(_leaves(error))
    if not all(isinstance(leaf, _FAILURES) for leaf in leaves):
        return None
    return str(leaves[0]) or type(leaves[0]).__name__


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def _first_line(program: str, *arguments: str) -> str:
    """The first line that *program* prints; empty if it is not installed."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        return ""
    out, _ = await process.communicate()
    return (out.decode(errors="replace").splitlines() or [""])[0].strip()
