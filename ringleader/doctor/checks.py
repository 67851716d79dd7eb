"""The shape of a check and of what it finds. Pure.

A check is a name, what it looks for, the parts of the picture it needs, and a function from the picture to findings.
Part of the picture that could not be read makes the check "not checked", with the reason, and never hides what the
rest shows. Every other module here makes `Check`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ringleader.doctor.seen import Seen


class Level(StrEnum):
    """How bad it is; in the order in which findings are told."""

    ERROR = "error"
    WARNING = "warning"
    UNCHECKED = "not checked"
    OK = "ok"


_ORDER = list(Level)
_TOLD = 10
"""Findings of one check that are told one by one: a thousand forged names are one trouble."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that a check has to say. *summary* is one line that names object and cause."""

    level: Level
    check: str
    summary: str
    ring: str = ""
    object: str = ""
    evidence: list[str] = []
    remedy: str = ""


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """What is found by the judging functions: a finding without its check's name."""

    level: Level
    summary: str
    ring: str = ""
    object: str = ""
    evidence: list[str] = []
    remedy: str = ""

    def by(self, check: str) -> Finding:
        return Finding(self.level, check, self.summary, self.ring, self.object, self.evidence, self.remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """*needs*: parts of the picture, by the beginnings of their names; *fine*: what is said if nothing is found."""

    name: str
    looks_for: str
    judge: Callable[[Seen], Iterable[Told]]
    fine: Callable[[Seen], str]
    needs: tuple[str, ...] = ()

    def run(self, seen: Seen) -> Iterator[Finding]:
        """At least one finding, the worst first."""
        told = [found.by(self.name) for found in self.judge(seen)]
        gaps = [gap for part, gap in sorted(seen.gaps.items()) if part.startswith(self.needs)]
        told += [Finding(Level.UNCHECKED, self.name, gap.summary, remedy=gap.remedy) for gap in gaps]
        if not told:
            told = [Finding(Level.OK, self.name, self.fine(seen))]
        yield from _shortened(in_order(told))


def _shortened(findings: list[Finding]) -> list[Finding]:
    """The first of *findings*; the last of these says how many more there are."""
    if len(findings) <= _TOLD:
        return findings
    last = findings[_TOLD - 1]
    more = [*last.evidence, f"and {len(findings) - _TOLD} more findings of this check"]
    return [*findings[: _TOLD - 1], msgspec.structs.replace(last, evidence=more)]


def error(
    summary: str, *, remedy: str, ring: str = "", about: str = "", evidence: Sequence[str] = ()
) -> Told:
    """Something does not work, or two things work on one object. *about*: the object, or what comes nearest."""
    return Told(Level.ERROR, summary, ring, about, list(evidence), remedy)


def warning(
    summary: str, *, remedy: str, ring: str = "", about: str = "", evidence: Sequence[str] = ()
) -> Told:
    """Something will hurt, or may be meant so."""
    return Told(Level.WARNING, summary, ring, about, list(evidence), remedy)


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level of *findings*."""
    return min((finding.level for finding in findings), key=_ORDER.index, default=Level.OK)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; those of one level in the order of the checks, which begins with what stops work."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.level))


def counted(count: int, noun: str) -> str:
    """`1 ring`, `2 rings`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Sequence[str], *, shown: int = 3) -> str:
    """The first few of *names*, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
