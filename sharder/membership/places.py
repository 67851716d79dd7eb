"""Places on the ring: the shard that fills each, and the instant at which one fell vacant. Pure.

Owned by `sharder.membership.membership`. A place belongs to a member. Joins, weights, cordons and changes of the
filling shard settle together, one window after the first of them. A place whose last shard died stays for a window of
its own: the member's next shard finds the ring unchanged and gets its objects directly. A shard that released its Lease
for good (ADR 9) or is leaving (ADR 45) leaves no place behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from sharder.membership.shards import ShardState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Candidate(NamedTuple):
    """A live shard that may fill its member's place."""

    name: str
    member: str
    state: ShardState
    created: str


class PlacesWanted(NamedTuple):
    """Content that a place would have without the settle window."""

    shard: str
    weight: float
    resources: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A member on the ring. *shard* is None while it waits for the next shard, until *vacant_since* + a window.

    *resources*: the kinds that the filling shard works, or the last one did; None: all that the ring has.
    """

    member: str
    weight: float
    shard: str | None
    vacant_since: float | None = None
    resources: frozenset[str] | None = None


_RANK = {ShardState.READY: 3, ShardState.EXPIRED: 2, ShardState.UNCERTAIN: 2}


def plan_filler(candidates: Iterable[Candidate]) -> Candidate:
    """The shard that fills a member's place: the ready one with the latest creation, then name."""
    return max(candidates, key=lambda each: (_RANK.get(each.state, 1), each.created, each.name))


class Places:
    """The places of one ring.

    `follow` takes the wanted state and the time; between two calls nothing moves. Repeating a call changes nothing.
    """

    def __init__(self, *, settle_s: float) -> None:
        self.settle_s = settle_s
        self._places: dict[str, Place] = {}
        self._pending: dict[str, float] = {}

    def follow(
        self,
        wanted: Mapping[str, PlacesWanted],
        *,
        may_fill: frozenset[str],
        departed: frozenset[str],
        at: float,
    ) -> None:
        """Let places follow *wanted*; a filler that is in *may_fill* keeps its place, any other leaves it at once.

        *departed*: shards that released their Lease for good, or are leaving; their places are removed at once.
        """
        for place in list(self._places.values()):
            if place.shard in departed - may_fill and place.member not in wanted:
                del self._places[place.member]
        for member in sorted(self._places.keys() | wanted.keys()):
            self._follow_one(member, wanted.get(member), may_fill=may_fill, at=at)
        for member in self._pending.keys() - self._places.keys() - wanted.keys():
            del self._pending[member]
        self._settle(wanted, at=at)

    def filler(self, member: str) -> str | None:
        """The shard that fills *member*'s place."""
        place = self._places.get(member)
        return place.shard if place is not None else None

    def current(self) -> Mapping[str, Place]:
        """The places as they are now."""
        return dict(self._places)

    def next_deadline(self) -> float | None:
        """Instant at which the next change settles; None if none is pending."""
        pending = [*self._pending.values(), *self._vacant().values()]
        return min(pending) + self.settle_s if pending else None

    def _follow_one(
        self, member: str, want: PlacesWanted | None, *, may_fill: frozenset[str], at: float
    ) -> None:
        place = self._places.get(member)
        if place is not None and place.shard is not None and place.shard not in may_fill:
            place = replace(place, shard=None, vacant_since=at)
        if place is not None and place.shard is None and want is not None:
            place = replace(place, shard=want.shard, vacant_since=None, resources=want.resources)
        if place is not None:
            self._places[member] = place
        has = PlacesWanted(place.shard, place.weight, place.resources) if place and place.shard else None
        settled = want == has
        is_vacant = place is not None and place.shard is None
        if settled or is_vacant:
            self._pending.pop(member, None)
        else:
            self._pending.setdefault(member, at)

    def _settle(self, wanted: Mapping[str, PlacesWanted], *, at: float) -> None:
        vacant = self._vacant()
        first = min([*self._pending.values(), *vacant.values()], default=None)
        if first is None or at < first + self.settle_s:
            return
        for member in self._pending:
            want = wanted.get(member)
            if want is None:
                del self._places[member]
            else:
                self._places[member] = Place(member, want.weight, want.shard, resources=want.resources)
        self._pending.clear()
        for member, since in vacant.items():
            if at >= since + self.settle_s:
                del self._places[member]

    def _vacant(self) -> dict[str, float]:
        return {p.member: p.vacant_since for p in self._places.values() if p.vacant_since is not None}
