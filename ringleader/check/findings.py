"""Shape of a check and of its findings. Pure.

A check is a name, what it looks for, the parts of the evidence that it needs, and a function from evidence to findings.
A part that could not be read makes the check "not checked", with the reason, and never hides what the rest shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from ringleader.output import age

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence
    from ringleader.cluster.causes import Cause


class Level(StrEnum):
    """Severity; in the order in which findings are shown."""

    ERROR = "error"
    WARNING = "warning"
    UNCHECKED = "not checked"
    OK = "ok"


_ORDER = list(Level)
_SHOWN = 10
"""Findings of one check that are shown one by one: a thousand forged names are one trouble."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One result of a check. *summary* is one line that names object and cause."""

    level: Level
    summary: str
    check: str = ""
    """Name of the check; empty until the check has run."""
    ring: str = ""
    object: str = ""
    evidence: list[str] = []
    remedy: str = ""
    reason: str = ""
    """The reason of its cause, as in `ringleader describe`; empty if no object or shard is judged."""


@dataclass(frozen=True, slots=True)
class Check:
    """*needs*: parts of the evidence, by the beginnings of their names; *fine*: the summary if nothing is found."""

    name: str
    looks_for: str
    judge: Callable[[Evidence], Iterable[Finding]]
    fine: Callable[[Evidence], str]
    needs: tuple[str, ...] = ()

    def run(self, evidence: Evidence) -> Iterator[Finding]:
        """At least one finding, the worst first."""
        found = [msgspec.structs.replace(each, check=self.name) for each in self.judge(evidence)]
        gaps = [gap for part, gap in sorted(evidence.gaps.items()) if part.startswith(self.needs)]
        found += [Finding(Level.UNCHECKED, gap.summary, self.name, remedy=gap.remedy) for gap in gaps]
        if not found:
            found = [Finding(Level.OK, self.fine(evidence), self.name)]
        yield from _shortened(in_order(found))


def _shortened(findings: list[Finding]) -> list[Finding]:
    """The first of *findings*; the last of these says how many more there are."""
    if len(findings) <= _SHOWN:
        return findings
    last = findings[_SHOWN - 1]
    more = [*last.evidence, f"and {len(findings) - _SHOWN} more findings of this check"]
    return [*findings[: _SHOWN - 1], msgspec.structs.replace(last, evidence=more)]


def error(
    summary: str, *, remedy: str, ring: str = "", about: str = "", evidence: Sequence[str] = ()
) -> Finding:
    """Something does not work, or two things work on one object. *about*: the object, or what comes nearest."""
    return Finding(Level.ERROR, summary, "", ring, about, list(evidence), remedy)


def warning(
    summary: str, *, remedy: str, ring: str = "", about: str = "", evidence: Sequence[str] = ()
) -> Finding:
    """Something will hurt, or may be meant so."""
    return Finding(Level.WARNING, summary, "", ring, about, list(evidence), remedy)


def caused(
    subject: str,
    cause: Cause,
    *,
    level: Level = Level.ERROR,
    ring: str,
    about: str = "",
    evidence: Sequence[str] = (),
) -> Finding:
    """*cause* of *subject*, in the words of `ringleader describe`."""
    since = f" (for {age(cause.since_seconds)})" if cause.since_seconds is not None else ""
    seen = [*evidence, *cause.evidence]
    return Finding(
        level, f"{subject} {cause.text}{since}", "", ring, about or subject, seen, cause.remedy, cause.reason
    )


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level of *findings*."""
    return min((finding.level for finding in findings), key=_ORDER.index, default=Level.OK)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; those of one level in the order of the checks, which begins with what stops work."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.level))


def counted(count: int, noun: str) -> str:
    """`1 ring`, `2 rings`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
