"""The last hour of one ring: members that came and went, and the number of moves. Pure; time is passed in.

Owns a fixed amount of memory whatever happens: counts in buckets, and the last few of what has a name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from sharder.live.facts import MemberFacts

BUCKET_S: Final = 30
BUCKETS: Final = 120
"""Buckets of BUCKET_S each: an hour."""
KINDS: Final = ("assigned", "takenOver", "handedOver")
_EVENTS: Final = 250
_NAMED: Final = 20


class MemberEvent(msgspec.Struct, frozen=True):
    """Something that befell a member. *at*: seconds since 1970."""

    at: float
    what: str
    member: str


class Move(msgspec.Struct, frozen=True):
    """One object that got an owner or is asked for: *kind* is one of KINDS, or `asked`."""

    kind: str
    object: str
    source: str
    target: str


class RingHistory:
    """Recent events of one ring: its moves, and changes of its members."""

    def __init__(self) -> None:
        self.happenings: deque[MemberEvent] = deque(maxlen=_EVENTS)
        self.news = 0
        """Grows with every happening."""
        self._members: dict[str, MemberFacts] | None = None
        self._buckets: deque[tuple[int, list[int]]] = deque(maxlen=BUCKETS)
        self._fresh: deque[Move] = deque(maxlen=_NAMED)
        self._unnamed = 0

    def moved(self, move: Move, *, at: float) -> None:
        """One object moved at *at* (seconds since 1970)."""
        if len(self._fresh) == _NAMED:
            self._unnamed += 1
        self._fresh.append(move)
        if move.kind in KINDS:
            self.bucket(at)[KINDS.index(move.kind)] += 1

    def bucket(self, at: float) -> list[int]:
        """The counts of the time that *at* lies in; of the newest one if the clock went back."""
        number = int(at // BUCKET_S)
        if not self._buckets or self._buckets[-1][0] < number:
            self._buckets.append((number, [0] * len(KINDS)))
        return self._buckets[-1][1]

    def saw(self, members: Mapping[str, MemberFacts], *, at: float) -> None:
        """Record changes of the members since the last call; members of the first call did not join."""
        before, self._members = self._members, dict(members)
        if before is None:
            return
        for member in sorted(before.keys() | members.keys()):
            old, new = before.get(member), members.get(member)
            what = _what(old, new)
            if what:
                self.happenings.append(MemberEvent(at, what, member))
                self.news += 1

    def take_fresh(self) -> tuple[list[Move], int]:
        """The last moves since this was asked, and how many more there were."""
        fresh, more = list(self._fresh), self._unnamed
        self._fresh.clear()
        self._unnamed = 0
        return fresh, more

    def timeline(self, *, at: float) -> list[list[int]]:
        """`[start, assigned, takenOver, handedOver]` of every bucket of the last hour in which something moved."""
        first = int(at // BUCKET_S) - BUCKETS
        return [[number * BUCKET_S, *counts] for number, counts in self._buckets if number > first]

    def recent(self, *, at: float) -> list[MemberEvent]:
        """Events of members in the last hour."""
        return [each for each in self.happenings if each.at > at - BUCKETS * BUCKET_S]


def _what(old: MemberFacts | None, new: MemberFacts | None) -> str:
    """The change in a word or two; empty if it concerns no person."""
    had, has = _has_place(old), _has_place(new)
    if new is None:
        return "left" if had else ""
    if has and not had:
        return "joined"
    if had and not has:
        return "left"
    if old is not None and old.state != new.state and has:
        return new.state
    if old is not None and has and old.shard and new.shard and old.shard != new.shard:
        return "next life"
    return ""


def _has_place(facts: MemberFacts | None) -> bool:
    return facts is not None and facts.place != "none"
