"""A finding about a controller, and what findings come to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

_SHOWN: Final = 8
"""Names that are shown one by one."""


class Verdict(StrEnum):
    """Whether to shard it; the worst first."""

    NO = "no"
    UNCLEAR = "unclear"
    CARE = "yes, with care"
    YES = "yes"


class Finding(msgspec.Struct, frozen=True):
    """One class of the controller, with its evidence. *remedy*: what to do about it."""

    letter: str
    verdict: Verdict
    text: str
    remedy: str = ""


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """The worst verdict of *findings*."""
    return min((each.verdict for each in findings), key=list(Verdict).index, default=Verdict.UNCLEAR)


def some(names: Sequence[str]) -> str:
    """The first of *names*, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
