"""`ringleader doctor`: reads once around, runs every check, says what is wrong.

Owns how findings are printed, and the exit code: 0 nothing is wrong, 1 something is (an error or a warning), 2 bad
input. What could not be checked alone does not make it 1: the output names it with the rule to add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ringleader.doctor.checks import Finding, Level, counted, in_order, worst
from ringleader.doctor.rounds import CHECKS, examine
from ringleader.doctor.seen import Seen
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, Table, print_document, print_line, print_table

if TYPE_CHECKING:
    from kubeio.rest.client import Client

WRONG = 1
_BAD = (Level.ERROR, Level.WARNING)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. *accounts*: users by role; *again_s*: when the second look begins."""

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


def run_doctor(where: ConnectionOptions, wanted: Wanted, *, form: Form | None) -> int:
    """The command."""
    report = connected(where, lambda client, _: diagnose(client, wanted))
    match form:
        case Form.JSON | Form.YAML:
            print_document(report, form=form)
        case Form.NAME:
            for name in dict.fromkeys(found.object for found in report.findings if found.level in _BAD):
                print_line(name)
        case _:
            print_report(report, form=form)
    return WRONG if report.level in _BAD else 0


async def diagnose(client: Client, wanted: Wanted) -> Report:
    """Look at the cluster and judge it. Raises: KubeError if the server cannot be asked at all, InputError."""
    from kubeio.clock import SystemClock
    from kubeio.rest.discovery import Discovery
    from ringleader.doctor.gathering import LookPace, look, read_rings
    from ringleader.doctor.hooks import read_hooks
    from ringleader.doctor.reader import Reader
    from ringleader.doctor.surroundings import find_accounts, read_installation, read_rights, read_server
    from ringleader.doctor.unfit import read_unfit
    from ringleader.inspect.cluster.reading import named_ring

    seen = Seen(SystemClock().wall(), managers=wanted.managers)
    reader = Reader(client, seen, timeout_s=wanted.timeout_s)
    with _progress() as shown:
        await read_server(reader)
        await read_installation(reader)
        rings = await reader.attempt("rings", read_rings(reader)) or []
        if wanted.ring is not None and "rings" not in seen.gaps:
            named_ring(list(rings), wanted.ring)
            rings = [ring for ring in rings if ring.name == wanted.ring]
        await look(reader, rings, Discovery(client), LookPace(wanted.again_s, shown))
        await read_unfit(reader)
        await find_accounts(reader, wanted.accounts)
        await read_rights(reader)
        await read_hooks(reader)
    findings = in_order(examine(seen))
    return Report(worst(findings), seen.server, seen.version, [ring.name for ring in rings], findings)


def _progress() -> AbstractContextManager[Any]:
    """Something to call with what is being read; shown on a terminal only."""
    import sys

    if not sys.stderr.isatty():
        return nullcontext(lambda told: None)
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
    """What is wrong first, each with its evidence and remedy; then one line for every check."""
    bad = [found for found in report.findings if found.level in _BAD]
    if not bad:
        unchecked = len({found.check for found in report.findings if found.level is Level.UNCHECKED})
        but = f", {unchecked} could not be made" if unchecked else ""
        print_line(f"nothing is wrong: {len(CHECKS)} checks of {counted(len(report.rings), 'ring')}{but}")
    for found in bad:
        print_line(f"{found.level}: {found.summary}")
        for line in found.evidence:
            print_line(f"  seen  {line}")
        print_line(f"  do    {found.remedy}")
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
            told = f"{len(bad)} found, see above"
        elif missing is not None:
            told = f"{missing.summary}; {missing.remedy}"
        else:
            told = found[0].summary
        rows.append([check.name, level.upper() if level is Level.OK else level, check.looks_for, told])
    return Table(("CHECK", "STATE", "LOOKS FOR", "FOUND"), rows, wide=("LOOKS FOR",))
