"""Rings as text: tables where they fit, fewer columns where they do not. Pure but for asking how wide stdout is.

Owns every word of `status`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.ring_status import MemberStatus, RingStatus
from ringleader.output import Table, age

LATE_S: Final = 5.0
"""Counts that are older say so."""
NOT_REPORTED: Final = (
    "objects: the sharder has not reported them (no sharder, an older one, or a replica that does not count);"
    " --count lists them"
)
_NARROWEST: Final = 20
_STATE: Final = 9
_NUMBER: Final = 9
_SHARE: Final = 6


@dataclass(frozen=True, slots=True)
class Screen:
    """How many columns there are; None: as many as it takes (a file, a pipe)."""

    columns: int | None = None

    @classmethod
    def of_stdout(cls) -> Self:
        """The terminal that stdout is, if it is one."""
        if not sys.stdout.isatty():
            return cls()
        if (said := os.environ.get("COLUMNS", "")).isdecimal() and int(said) > 0:
            return cls(int(said))
        return cls(os.get_terminal_size(sys.stdout.fileno()).columns or None)

    def fits(self, lines: Sequence[str]) -> bool:
        return self.columns is None or all(len(line) <= self.columns for line in lines)


def status_lines(looks: Sequence[RingStatus], screen: Screen, *, is_wide: bool, now: datetime) -> list[str]:
    """Every ring, with a blank line between them."""
    if not looks:
        return ["no ring in this cluster; examples/website/ring.yaml is one to begin with"]
    lines: list[str] = []
    for index, shown in enumerate(looks):
        lines += [""] * bool(index)
        wide = _in_tables(shown, is_wide=is_wide, now=now)
        lines += wide if screen.fits(wide) else _narrow(shown, screen.columns or 80, now=now)
    return lines


def _in_tables(shown: RingStatus, *, is_wide: bool, now: datetime) -> list[str]:
    lines = [*ring_table(shown).lines(is_wide=is_wide), *_remarks(shown, now=now)]
    if shown.members:
        lines += ["", *member_table(shown, is_wide=is_wide).lines(is_wide=is_wide)]
    return lines


def _remarks(shown: RingStatus, *, now: datetime) -> list[str]:
    """Lines below the numbers of a ring."""
    warning = f"warning: {shown.warning}" if shown.warning else ""
    found = (convergence(shown, now=now), pause(shown), lateness(shown), source(shown), warning)
    return [line for line in found if line]


def ring_table(shown: RingStatus) -> Table:
    places = sum(member.ideal > 0 for member in shown.members)
    numbers = (shown.objects, shown.unowned, shown.in_flight, places)
    row = [shown.name, *map(_number, numbers), shown.ready, shown.balanced]
    return Table(("RING", "OBJECTS", "UNOWNED", "IN FLIGHT", "PLACES", "READY", "BALANCED"), [row])


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def convergence(shown: RingStatus, *, now: datetime) -> str:
    """Whether everything is at its place; if not, what is to do, at what pace, and how long that takes.

    Empty if the objects are not counted.
    """
    if not shown.is_counted:
        return ""
    if shown.releasing:
        return _releasing(shown)
    if not shown.to_do:
        took, at = shown.converged_after_seconds, seconds_since(shown.converged_at, now)
        silent = [each for each in shown.members if each.silent]
        if silent:
            names = ", ".join(f"{each.member} (for {age(each.lease_age_seconds)})" for each in silent)
            idle = sum(each.objects or 0 for each in silent)
            return (
                f"every object is at its place, but {idle:,} are not reconciled: no Lease renewed by {names}"
            )
        last = f"; the last change took {duration(took)}, {age(at)} ago" if took is not None else ""
        return f"converged: every object is at its place{last}"
    about = "" if shown.reported_seconds_ago is None or not shown.misplaced else "about "
    to_do = (
        f"to do: {about}{shown.to_do:,} objects ({shown.unowned:,} unowned, {shown.misplaced:,} misplaced)"
    )
    if shown.paused and not shown.unowned:
        return to_do
    return f"{to_do}{_pace(shown)}"


def pause(shown: RingStatus) -> str:
    """That the ring is paused, and the way out; empty if it is not."""
    if not shown.paused or shown.releasing:
        return ""
    return f"paused: nothing moves between live replicas; ringleader resume {shown.name} ends that"


def lateness(shown: RingStatus) -> str:
    """That the counts are old ones; empty if they are not."""
    if shown.age_seconds < LATE_S:
        return ""
    return f"the API server is busy: it was so {age(shown.age_seconds)} ago"


def source(shown: RingStatus) -> str:
    """Where the numbers of objects come from; empty if the objects were listed."""
    if not shown.is_counted:
        return NOT_REPORTED
    if shown.reported_seconds_ago is None:
        return ""
    return (
        f"objects: as replicas counted them up to {age(shown.reported_seconds_ago)} ago (--count lists them)"
    )


def _releasing(shown: RingStatus) -> str:
    if not shown.to_do:
        return "being given up: no object has an owner any more; the ring goes when no replica holds a Lease"
    return f"being given up: {shown.to_do:,} of {shown.objects:,} objects still have an owner{_pace(shown)}"


def _pace(shown: RingStatus) -> str:
    if shown.rate_per_second is None:
        return ""
    if shown.seconds_left is None or shown.rate_per_second <= 0:
        return "; nothing moves"
    rate = f"{shown.rate_per_second:,.0f}" if shown.rate_per_second >= 100 else f"{shown.rate_per_second:.3g}"
    return f"; {rate}/s, about {duration(shown.seconds_left)} left"


def duration(seconds: float) -> str:
    """*seconds* for people: 0.4 s, 12 s, 3 min, 2 h."""
    for limit, unit_s, suffix in ((10, 1, "s"), (120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            digits = 1 if limit == 10 and seconds != int(seconds) else 0
            return f"{seconds / unit_s:.{digits}f} {suffix}"
    return f"{seconds / 3600:.0f} h"


def member_table(shown: RingStatus, *, is_wide: bool) -> Table:
    """One row per shard; dead ones without objects are shown with `-o wide` only."""
    return Table(
        ("MEMBER", "SHARD", "STATE", "LEASE AGE", "OBJECTS", "SHARE", "IDEAL", "IN FLIGHT"),
        [
            [
                member.member,
                member.shard,
                member.state,
                age(member.lease_age_seconds),
                _number(member.objects),
                _share(member),
                f"{member.ideal:.1%}" if member.ideal else "-",
                f"{member.in_flight:,}",
            ]
            for member in shown_members(shown, is_wide=is_wide)
        ],
        wide=("SHARD", "IN FLIGHT"),
    )


def _share(member: MemberStatus) -> str:
    return "-" if member.share is None else f"{member.share:.1%}"


def shown_members(shown: RingStatus, *, is_wide: bool) -> list[MemberStatus]:
    return [each for each in shown.members if is_wide or each.objects or each.ideal or each.state != "dead"]


def _narrow(shown: RingStatus, columns: int, *, now: datetime) -> list[str]:
    """The same in *columns* columns: numbers below each other, and four columns for each member."""
    lines = [f"RING {shown.name}"]
    lines += [f"objects {_number(shown.objects)}", f"unowned {_number(shown.unowned)}"]
    lines += [f"in flight {shown.in_flight:,}", f"ready {shown.ready}, balanced {shown.balanced}"]
    lines += [part for line in _remarks(shown, now=now) for part in wrapped(line, columns)]
    width = max(columns - _STATE - _NUMBER - _SHARE - 3, 4)
    members = shown_members(shown, is_wide=False)
    if members:
        lines += ["", _member_line("MEMBER", "STATE", "OBJECTS", "SHARE", width)]
    lines += [
        _member_line(each.member, each.state, _number(each.objects), _share(each), width) for each in members
    ]
    return [shortened(line, max(columns, _NARROWEST)) for line in lines]


def _member_line(member: str, state: str, objects: str, share: str, width: int) -> str:
    name = shortened(member, width).ljust(width)
    return f"{name} {shortened(state, _STATE):<{_STATE}} {objects:>{_NUMBER}} {share:>{_SHARE}}"


def shortened(text: str, width: int) -> str:
    """*text* in *width* characters: its end distinguishes replicas, so the middle is left out."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :] if width > 2 else text[:width]


def wrapped(text: str, columns: int) -> list[str]:
    """*text* in lines of at most *columns* characters."""
    import textwrap

    return textwrap.wrap(text, max(columns, _NARROWEST), subsequent_indent="  ")
