"""The report of learn mode: its text, and the same as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml

from proxy.learn.classes import judge, unknown_of
from proxy.learn.configuration import as_typed, command_line, ring_document
from proxy.learn.findings import Finding, Verdict, verdict_of
from proxy.learn.seen import Seen
from proxy.learn.trees import Trees, companions, find_trees

_WIDTH: Final = 110


class Report(msgspec.Struct, rename="camel"):
    """What learn mode found. *ring* and *command* are empty if it must not be sharded, or no main resource was seen."""

    verdict: Verdict
    seconds: float
    classes: list[str]
    findings: list[Finding]
    not_seen: list[str]
    locks: list[str]
    roots: list[str] = []
    controlled: list[str] = []
    leaves: list[str] = []
    companions: dict[str, list[str]] = {}
    ring: dict[str, Any] | None = None
    command: list[str] = []


def make_report(seen: Seen, command: Sequence[str]) -> Report:
    """The report about what was *seen* of *command*."""
    findings = judge(seen, command)
    trees = find_trees(seen) if any(each.letter == "A" for each in findings) else None
    report = Report(
        verdict=verdict_of(findings),
        seconds=round(seen.seconds, 1),
        classes=sorted({each.letter for each in findings if each.letter}),
        findings=findings,
        not_seen=unknown_of(seen) if trees else [],
        locks=seen.lock_names(),
        companions=companions(seen),
    )
    if trees:
        _add_trees(report, seen, trees, command)
    return report


def _add_trees(report: Report, seen: Seen, trees: Trees, command: Sequence[str]) -> None:
    report.roots, report.controlled, report.leaves = trees.roots, trees.controlled, trees.leaves
    if report.verdict is not Verdict.NO:
        report.ring = ring_document(seen, trees)
        report.command = command_line(seen, trees, command)


def report_text(report: Report) -> str:
    """*report* for a person."""
    classes = f" (class {', '.join(report.classes)})" if report.classes else ""
    lines = [f"May it be sharded: {report.verdict}{classes}; seen for {report.seconds:.0f} s", ""]
    for each in report.findings:
        lines += _wrapped(f"{each.letter or '-'}  {each.verdict}: {each.text}.")
        lines += _wrapped(f"   do: {each.remedy}.") if each.remedy else []
    lines += [f"   Locks: {', '.join(report.locks) or 'none; if it elects a leader, it did not lead'}.", ""]
    lines += ["Not seen:"] if report.not_seen else []
    lines += [line for each in report.not_seen for line in _wrapped(f"-  {each}")]
    if report.ring is not None:
        namespace = report.ring["spec"]["leaseNamespace"]
        if report.verdict is Verdict.UNCLEAR:
            lines += ["", "# Only if nothing of the above speaks against it:"]
        lines += ["", f"# The ring; its Leases need a namespace: kubectl create namespace {namespace}"]
        lines += [yaml.safe_dump(report.ring, sort_keys=False).rstrip(), "", "# Each replica"]
        lines += [as_typed(report.command)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
    )
