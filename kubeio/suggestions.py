"""Suggestions for a name that is not known: the nearest known ones, or what there is. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """At most *most* of *known* that resemble *name*, the nearest first."""
    return difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)


def did_you_mean(names: Iterable[str]) -> str:
    """A question that offers *names*; empty without any."""
    offered = " or ".join(names)
    return f"did you mean {offered}?" if offered else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Text for a remedy: the *known* names that were perhaps meant, else some of those that exist."""
    known = list(known)
    if not known:
        return "there are none"
    more = ", ..." if len(known) > 8 else ""
    return did_you_mean(closest(name, known)) or "known are " + ", ".join(sorted(known)[:8]) + more
