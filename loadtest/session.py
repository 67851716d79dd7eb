"""From the words of `ringleader loadtest run` to its exit code: target, run, verdict, report, and the objects' end.

Owns what is printed at the end and where the report lies.
"""

from __future__ import annotations

import asyncio
import errno
import json
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from devcluster.real import PlaneFailed
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.errors import InputError, KubeError
from kubeio.program.command_line import INTERRUPTED
from kubeio.program.failures import FAILED, FailedAt, failure
from kubeio.rest.client import Client
from loadtest.inputs.scenario import Schedule
from loadtest.inputs.slo import Line, judge, shown_as
from loadtest.inputs.template import Template
from loadtest.load import LoadFailed, LocustOptions
from loadtest.machine import Machine, read_machine
from loadtest.objects import LeftOver
from loadtest.progress import Console
from loadtest.reporting.document import command_line, document
from loadtest.reporting.figures import measured
from loadtest.reporting.page import page
from loadtest.reporting.picture import draw
from loadtest.run import Found, Run, RunOptions
from loadtest.targets.cluster import ClusterOptions, open_cluster
from loadtest.targets.own import OwnOptions, open_own
from loadtest.targets.target import ActionFailed, LoadRefused, Target
from loadtest.teardown import Leftovers, remove, remove_in_child
from ringleader.output import Form, Table, print_document, print_line, print_table
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.replica import ReplicaFailedError

T = TypeVar("T")
_MAX_CONNECTIONS: Final = 96
_EXPECTED: Final = (
    LoadFailed,
    LoadRefused,
    LeftOver,
    NotConvergedError,
    ReplicaFailedError,
    PlaneFailed,
    ActionFailed,
)
"""What keeps a run from its end without being a fault of this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything that was asked for, checked as far as it can be without a server."""

    run: str
    target: OwnOptions | ClusterOptions
    schedules: Sequence[Schedule]
    template: Template
    limits: Mapping[str, float]
    objects: int
    locust: LocustOptions
    template_path: str
    form: Form | None

    def folder(self, schedule: Schedule) -> Path:
        """Where the report of *schedule* goes: a folder of its own where there are several."""
        out = self.locust.out
        return out / schedule.scenario if len(self.schedules) > 1 else out

    def prepare_folders(self) -> None:
        """Make and try every folder of a report. Raises: InputError."""
        for schedule in self.schedules:
            prepare_folder(self.folder(schedule))


async def run_session(session: Session) -> int:
    """The whole command: 0 if the service level was held, 1 if not, 130 if it was interrupted."""
    console = Console()
    return await reported(_run_and_print(session, console))


async def _run_and_print(session: Session, console: Console) -> int:
    reports = await _run(session, console)
    _print(reports, session.form)
    return 0 if all(report["passed"] for report in reports) else FAILED


async def reported(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of *work*; what keeps a run from its end is one message. Raises: InputError."""
    try:
        return await work
    except asyncio.CancelledError:
        return INTERRUPTED
    except InputError:
        raise
    except KubeError as error:
        return fail(failure(error).message)
    except _EXPECTED as error:
        return fail(str(error))
    except BaseExceptionGroup as group:
        found = _first_expected(group)
        if found is None:
            raise
        return fail(failure(found).message if isinstance(found, KubeError) else str(found))


async def _run(session: Session, console: Console) -> list[dict[str, Any]]:
    """The report of each scenario; all of them run on the same objects and the same fleet."""
    machine = read_machine()
    async with opened(session, console) as opening:
        return await named_server(_loads(session, opening, machine, console), opening.server)


async def _loads(
    session: Session, opening: Opening, machine: Machine, console: Console
) -> list[dict[str, Any]]:
    run, reports = opening.run, list[dict[str, Any]]()
    async with run.prepared(removal(session, run.target, console)) as prepared:
        surroundings = {"machine": msgspec.to_builtins(machine), **await opening.surroundings()}
        for schedule in session.schedules:
            if reports:
                await run.restore(prepared, prepared.replicas)
            found, out = Found(prepared, schedule), session.folder(schedule)
            await run.load(found, out=out)
            await run.audit(found)
            if machine.load_before > machine.cores / 2:
                found.notices.append(
                    f"the machine was busy before the run: load {machine.load_before:g} on {machine.cores} cores"
                )
            reports.append(_report(session, run, found, out, surroundings))
            verdict = "passed" if reports[-1]["passed"] else "FAILED"
            console.say(f"{schedule.scenario}: {verdict}; report: {out / 'report.html'}")
    return reports


@dataclass(frozen=True, slots=True)
class Opening:
    """A run that may begin: its target is there, its client connected."""

    run: Run
    server: str
    client: Client

    async def surroundings(self) -> dict[str, Any]:
        """For the report: what was loaded, by which command, in which versions."""
        versions = await read_versions(self.client)
        return {"target": self.run.target.description, "versions": versions, "command": command_line()}


@asynccontextmanager
async def opened(session: Session, console: Console) -> AsyncIterator[Opening]:
    """The target of *session* and a run on it; an own fleet is gone when the block ends."""
    async with open_target(session.run, session.target, console) as target:
        cluster = load_cluster(kubeconfig=target.kubeconfig or None, context=target.context or None)
        options = RunOptions(
            run=session.run,
            objects=session.objects,
            template=session.template,
            locust=session.locust.acting_as(target.kubeconfig, target.context),
        )
        async with Client(
            cluster, user_agent="ringleader-loadtest", max_connections=_MAX_CONNECTIONS
        ) as client:
            run = Run(options, target, client, clock=SystemClock(), console=console)
            yield Opening(run, cluster.server, client)


async def named_server(work: Coroutine[Any, Any, T], server: str) -> T:
    """*work*; what the API server refuses names the server. Raises: FailedAt."""
    try:
        return await work
    except InputError:
        raise
    except KubeError as error:
        raise FailedAt(error, server) from error


@asynccontextmanager
async def open_target(
    run: str, options: OwnOptions | ClusterOptions, console: Console
) -> AsyncIterator[Target]:
    """The fleet that *options* describe. Raises: InputError, PlaneFailed."""
    match options:
        case OwnOptions() as own:
            plane = "a real control plane" if own.real else "an embedded control plane"
            console.say(f"run {run}: starting {plane}, 2 sharders and {own.replicas} replicas")
            async with open_own(own) as fleet:
                yield fleet
        case ClusterOptions() as there:
            async with open_cluster(there) as cluster:
                yield cluster


@asynccontextmanager
async def removal(session: Session, target: Target, console: Console) -> AsyncIterator[None]:
    """Objects of the run are gone when the block ends, however it ends; an own control plane goes as a whole."""
    if isinstance(session.target, OwnOptions):
        yield
        return
    left = Leftovers(session.run, target.namespace, session.template_path, target.kubeconfig, target.context)
    console.say(f"run {session.run}: {target.description}")
    console.say(f"if this command is killed, remove its objects by: {left.command_line()}")
    try:
        yield
    finally:
        console.say("removing the objects of the run (Ctrl-C leaves it to a process of its own)")
        await remove_in_child(left)


def _report(
    session: Session, run: Run, found: Found, out: Path, surroundings: dict[str, Any]
) -> dict[str, Any]:
    figures = measured(
        found,
        found.waits,
        run.sampler.window,
        changes_spec=session.template.changes_spec,
    )
    lines = judge(session.limits, figures)
    report = document(
        run.options,
        found,
        lines,
        observer=run.observer,
        sampler=run.sampler,
        counts=run.locust.seen.counts if run.locust is not None else [],
        surroundings=surroundings,
    )
    _write(out, report)
    return report


def _write(out: Path, report: dict[str, Any]) -> None:
    """The report's files; a full disk leaves the verdict on the terminal."""
    texts = {
        "report.json": json.dumps(report, indent=1) + "\n",
        "report.html": page(report, draw(report["series"], report["actions"])),
    }
    for name, text in texts.items():
        try:
            (out / name).write_text(text)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            sys.stderr.write(f"error: {out / name}: {error.strerror}; the report is not complete\n")
            report["passed"] = False


async def read_versions(client: Client) -> dict[str, str]:
    answer = await client.request("GET", "/version")
    return {
        "ringleader": metadata.version("ringleader"),
        "locust": metadata.version("locust"),
        "python": platform.python_version(),
        "API server": str(msgspec.json.decode(answer.body).get("gitVersion", "")),
    }


def _print(reports: Sequence[dict[str, Any]], form: Form | None) -> None:
    if form in (Form.JSON, Form.YAML):
        many = {"passed": all(report["passed"] for report in reports), "reports": reports}
        print_document(reports[0] if len(reports) == 1 else many, form=form)
    else:
        for report in reports:
            if len(reports) > 1:
                print_line(f"\n{report['scenario']}")
            _print_verdict(report, form)
    for report in reports:
        of = f"{report['scenario']}: " if len(reports) > 1 else ""
        for line in report["verdict"]:
            if line["passed"] is False:
                sys.stderr.write(f"FAILED: {of}{msgspec.convert(line, Line)}\n")
        for happened in report["actions"]:
            if happened["has_failed"]:
                sys.stderr.write(f"FAILED: {of}{happened['action']}: {happened['text']}\n")


def _print_verdict(report: Mapping[str, Any], form: Form | None) -> None:
    words = {True: "passed", False: "FAILED", None: "-"}
    rows = [
        (
            line["title"],
            shown_as(line["value"], line["unit"]),
            f"{'>=' if line['name'] == 'achieved' else '<='} {shown_as(line['limit'], line['unit'])}",
            f"{line['count']:,}",
            words[line["passed"]],
        )
        for line in report["verdict"]
    ]
    print_table(Table(("LINE", "MEASURED", "LIMIT", "COUNT", "VERDICT"), rows), form=form)
    for notice in [*report["notices"], *report["findings"]]:
        print_line(f"note: {notice}")


def _first_expected(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first exception inside *group*, if all of them are expected."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        inner = _first_expected(error) if isinstance(error, BaseExceptionGroup) else error
        if inner is None or not isinstance(inner, (*_EXPECTED, KubeError)):
            return None
        leaves.append(inner)
    return leaves[0] if leaves else None


def fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return FAILED


def prepare_folder(out: Path) -> None:
    """The folder of the report, made and tried. Raises: InputError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        problem = f"cannot be written to ({error.strerror})"
        raise InputError("--out", str(out), problem, "name a folder that can be written to") from None


async def removed(left: Leftovers, template: Template, console: Console) -> int:
    """`ringleader loadtest teardown`: 0 once nothing of the run is left."""

    async def work() -> int:
        count = await remove(left, template, console)
        console.say(f"{count:,} objects of run {left.run} deleted; none is left")
        return 0

    return await reported(work())
