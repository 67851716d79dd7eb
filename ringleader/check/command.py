"""`ringleader check`: reads the cluster, runs every check, prints what is wrong.

The exit code: 0 nothing is wrong, 1 something is (an error or a warning), 2 bad
input. What could not be checked alone does not make it 1: the output names it with the rule to add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ringleader.check.checks import CHECKS, all_findings
from ringleader.check.findings import Finding, Level, counted, in_order, worst
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, Table, print_document, print_line, print_table

if TYPE_CHECKING:
    from kubeio.rest.client import Client

WRONG = 1
_BAD = (Level.ERROR, Level.WARNING)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command. *accounts*: users by role; *again_s*: when the second look begins."""

    ring: str | None
    accounts: Mapping[str, Sequence[str]]
    managers: frozenset[str]
    again_s: float
    timeout_s: float


class Report(msgspec.Struct, rename="camel"):
    """The JSON document."""

    level: Level
    server: str
    version: str
    rings: list[str]
    findings: list[Finding]


def run_check(where: ConnectionOptions, wanted: Wanted, *, form: Form | None) -> int:
    """The command."""
    report = connected(where, lambda client, _: examine(client, wanted))
    match form:
        case Form.JSON | Form.YAML:
            print_document(report, form=form)
        case Form.NAME:
            for name in dict.fromkeys(found.object for found in report.findings if found.level in _BAD):
                print_line(name)
        case _:
            print_report(report, form=form)
    return WRONG if report.level in _BAD else 0


async def examine(client: Client, wanted: Wanted) -> Report:
    """Read the cluster and judge it. Raises: KubeError if the server cannot be asked at all, InputError."""
    from kubeio.rest.discovery import Discovery
    from ringleader.check.collect import LookPace, collect
    from ringleader.check.environment import find_accounts, read_installation, read_rights, read_server
    from ringleader.check.hooks import read_hooks
    from ringleader.check.unfit import read_unfit
    from ringleader.cluster.reader import ClusterReader

    reader = ClusterReader(client, timeout_s=wanted.timeout_s)
    with _progress() as show:
        evidence = await collect(reader, Discovery(client), wanted.ring, LookPace(wanted.again_s, show))
        evidence.managers = wanted.managers
        await read_server(reader, evidence)
        await read_installation(reader, evidence)
        await read_unfit(reader, evidence)
        await find_accounts(reader, evidence, wanted.accounts)
        await read_rights(reader, evidence)
        await read_hooks(reader, evidence)
    findings = in_order(all_findings(evidence))
    rings = [ring.name for ring in evidence.rings]
    return Report(worst(findings), evidence.server, evidence.version, rings, findings)


def _progress() -> AbstractContextManager[Any]:
    """Something to call with what is being read; shown on a terminal only."""
    import sys

    if not sys.stderr.isatty():
        return nullcontext(lambda text: None)
    return _spinner()


def _spinner() -> AbstractContextManager[Any]:
    from contextlib import contextmanager

    from rich.console import Console

    @contextmanager
    def spinning() -> Any:
        with Console(stderr=True).status("reading") as status:
            yield status.update

    return spinning()


def print_report(report: Report, *, form: Form | None) -> None:
    """Print what is wrong, each with its evidence and remedy; then one line for every check."""
    bad = [found for found in report.findings if found.level in _BAD]
    if not bad:
        unchecked = len({found.check for found in report.findings if found.level is Level.UNCHECKED})
        made = f"{len(CHECKS) - unchecked} of {len(CHECKS)}" if unchecked else str(len(CHECKS))
        but = f"; {unchecked} could not be made" if unchecked else ""
        print_line(f"nothing is wrong: {made} checks of {counted(len(report.rings), 'ring')}{but}")
    for found in bad:
        print_line(f"{found.level}: {found.summary}")
        for line in found.evidence:
            print_line(f"  evidence  {line}")
        print_line(f"  do        {found.remedy}")
    print_line()
    print_table(check_table(report.findings), form=form)


def check_table(findings: Sequence[Finding]) -> Table:
    """A line for every check, with the worst that it found."""
    rows = []
    for check in CHECKS:
        found = [each for each in findings if each.check == check.name]
        level = worst(found)
        bad = [each for each in found if each.level in _BAD]
        missing = next((each for each in found if each.level is Level.UNCHECKED), None)
        if bad:
            text = f"{len(bad)} found, see above"
        elif missing is not None:
            text = f"{missing.summary}; {missing.remedy}"
        else:
            text = found[0].summary
        rows.append([check.name, level.upper() if level is Level.OK else level, check.looks_for, text])
    return Table(("CHECK", "STATE", "LOOKS FOR", "FOUND"), rows, wide=("LOOKS FOR",))
