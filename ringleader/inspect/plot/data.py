"""Numbers behind the figures: rows of members, and the lines of a timeline. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import nan
from statistics import fmean
from typing import Annotated, Final, NamedTuple

import msgspec

from kubeio.errors import InputError
from ring import HashRing
from ringleader.cluster.ring_status import RingStatus
from ringleader.inspect.simulate.change import in_order
from ringleader.inspect.status.layout import shortened

MOST_ROWS: Final = 50
"""Bars on one page: 50 rows of 0.2 inches fill a sheet of paper."""
MOST_NAMED: Final = 10
"""Lines with a colour of their own: the palette has ten."""
MOST_WARNINGS: Final = 10
LONGEST_NAME: Final = 63
"""Characters of a name that are shown: a pod's hostname is never longer."""


class ShareRow(NamedTuple):
    """One member: its share of the hash space, the share that its weight asks for, and the bound."""

    name: str
    share: float
    even: float
    bound: float


def label(name: str) -> str:
    """*name* on one line of at most `LONGEST_NAME` characters."""
    return shortened("".join(each if each.isprintable() else "?" for each in name), LONGEST_NAME)


def share_rows(ring: HashRing, *, most: int = MOST_ROWS) -> list[ShareRow]:
    """Members in their order; of more than *most* the ones nearest to their bound, then the mean of the others."""
    shares, even, limit = ring.shares(), ring.fair_shares(), 1 + ring.eps
    rows = [
        ShareRow(label(name), float(shares[name]), float(even[name]), float(even[name] * limit))
        for name in in_order(list(ring.members))
    ]
    if len(rows) <= most:
        return rows
    rows.sort(key=lambda row: -row.share / row.even)
    others = rows[most - 1 :]
    means = (fmean(each) for each in zip(*(row[1:] for row in others), strict=True))
    return [*rows[: most - 1], ShareRow(f"mean of {len(others):,} others", *means)]


class _Look(msgspec.Struct, rename="camel"):
    """One line of `ringleader status -w -o json`; with a *problem* it repeats the rings of the line before."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    rings: list[RingStatus]
    age_seconds: float = 0.0
    problem: str = ""


class Moment(NamedTuple):
    """One ring at one time."""

    at: datetime
    ring: RingStatus


def read_moments(
    lines: Iterable[bytes], ring: str | None, *, source: str, warn: Callable[[str], None]
) -> list[Moment]:
    """Moments of *ring*, or of the only one in *lines*, in order of time. Broken lines are left out with a warning.

    Raises: InputError if fewer than two moments remain, or if *ring* is needed or unknown.
    """
    decode = msgspec.json.Decoder(_Look).decode
    moments, broken = [], 0
    for number, line in enumerate(lines, start=1):
        try:
            look = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            broken += bool(line.strip())
            if line.strip() and broken <= MOST_WARNINGS:
                warn(f"{source}, line {number}: {error}; left out")
            continue
        if not look.problem:
            moments += [
                Moment(look.at - timedelta(seconds=look.age_seconds + each.age_seconds), each)
                for each in look.rings
                if each.is_counted
            ]
    if broken > MOST_WARNINGS:
        warn(f"{source}: {broken - MOST_WARNINGS:,} more broken lines are left out")
    chosen = _of_one_ring(moments, ring)
    if len(chosen) < 2:
        problem = "holds one moment only" if chosen else "holds nothing to draw"
        raise InputError("-f", source, problem, "record some: ringleader status -w -o json > FILE")
    return sorted(chosen, key=lambda moment: moment.at)


def _of_one_ring(moments: Sequence[Moment], ring: str | None) -> list[Moment]:
    names = sorted({moment.ring.name for moment in moments})
    if ring is None and len(names) > 1:
        problem = "is missing, and the input has several"
        raise InputError("RING", "", problem, f"name one of {', '.join(names)}")
    if ring is not None and names and ring not in names:
        raise InputError("RING", ring, "is not in the input", f"name one of {', '.join(names)}")
    return [moment for moment in moments if ring in (None, moment.ring.name)]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lines of one ring over *seconds* since *start*.

    *named* and *others* have objects by member, nan while a member is absent. *named* holds those that changed most.
    """

    ring: str
    start: datetime
    seconds: list[float]
    named: dict[str, list[float]]
    others: list[list[float]]
    waiting: dict[str, list[int]]
    """Objects that are not at rest: handed over, misplaced, without an owner."""


def timeline(moments: Sequence[Moment], *, most: int = MOST_NAMED) -> Timeline:
    """The lines of *moments*, at least one; at most *most* members have names."""
    counts = [_objects(moment.ring) for moment in moments]
    members = in_order(list(set().union(*counts)))
    lines = {member: [float(count.get(member, nan)) for count in counts] for member in members}
    changed = {
        member: _change([count.get(member, 0) for count in counts])  # absent: no objects
        for member in members
    }
    named = set(sorted(members, key=lambda member: -changed[member])[:most])
    rings = [moment.ring for moment in moments]
    return Timeline(
        ring=rings[0].name,
        start=moments[0].at,
        seconds=[(moment.at - moments[0].at).total_seconds() for moment in moments],
        named={member: lines[member] for member in members if member in named},
        others=[lines[member] for member in members if member not in named],
        waiting={
            "being handed over": [ring.in_flight for ring in rings],
            "misplaced": [ring.misplaced or 0 for ring in rings],
            "without an owner": [ring.unowned or 0 for ring in rings],
        },
    )


def _change(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def _objects(ring: RingStatus) -> Counter[str]:
    """Objects by member, over its shards. A member that has neither objects nor a place is absent."""
    found: Counter[str] = Counter()
    for each in ring.members:
        if each.objects or each.ideal:
            found[each.member] += each.objects or 0
    return found
