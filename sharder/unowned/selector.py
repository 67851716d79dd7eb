"""The label selector of the unowned watch, short enough for any request line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kubeio.protocol import RingKeys

LONGEST_BYTES: Final = 6_000
"""Bytes of a selector in the request line, about 150 names. Proxies take lines of 8 KB; path, version and
continue token need up to 1.5 KB of that."""


@dataclass(frozen=True, slots=True)
class SelectorPlan:
    """Selection of the unowned watch.

    *selector* is the watch's own. *orphans* are dead names whose objects it leaves out, because a selector with names
    would be too long: these objects are listed.
    """

    selector: str
    orphans: frozenset[str] = frozenset()


def plan_selection(keys: RingKeys, not_dead: Iterable[str], dead: Iterable[str] = ()) -> SelectorPlan:
    """Select all objects whose label names none of *not_dead*; if these are too many, all without the label."""
    names = ",".join(sorted(not_dead))
    if not names:
        return SelectorPlan("")
    selector = f"{keys.shard} notin ({names})"
    if len(quote_plus(selector)) <= LONGEST_BYTES:
        return SelectorPlan(selector)
    return SelectorPlan(f"!{keys.shard}", frozenset(dead))


def selectors_of(keys: RingKeys, names: Iterable[str]) -> Iterator[str]:
    """Selectors that together match every object whose label names one of *names*; each short enough."""
    left = LONGEST_BYTES - len(quote_plus(f"{keys.shard} in ()"))
    part: list[str] = []
    used = 0
    for name in sorted(names):
        size = len(quote_plus(f"{name},"))
        if part and used + size > left:
            yield f"{keys.shard} in ({','.join(part)})"
            part, used = [], 0
        part.append(name)
        used += size
    if part:
        yield f"{keys.shard} in ({','.join(part)})"
