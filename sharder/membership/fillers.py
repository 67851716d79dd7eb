"""The shard that fills each member's place, and why another one does not yet (protocol, section 4). Pure.

Owned by `sharder.membership.membership`. `sharder.membership.places` has the places themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharder.membership.flapping import Flapping
from sharder.membership.places import Candidate, Places, PlacesWanted, plan_filler
from sharder.membership.shards import Holding
from sharder.membership.view import Unplaced

if TYPE_CHECKING:
    from collections.abc import Collection

    from sharder.membership.shards import Shard
    from sharder.ringspec.spec import RingSpec


class Fillers:
    """Keeps *places* filled under *spec*. Instants are of the sharder's monotonic clock."""

    def __init__(self, spec: RingSpec) -> None:
        self.places = Places(settle_s=spec.settle_s)
        self._spec = spec
        self._flapping = Flapping()

    def configure(self, spec: RingSpec) -> None:
        """Work under a newer version of the same ring."""
        self._spec = spec
        self.places.settle_s = spec.settle_s

    def note_end(self, shard: Shard, *, at: float) -> None:
        """*shard* lost its Lease, or gave it back. The age of one that was there before this sharder is not known."""
        if shard.is_held and not shard.seen_in_first_list:
            lived_s = shard.changed_at - shard.born_at
            self._flapping.note_end(shard.member, lived_s=lived_s, duration_s=shard.longest_duration_s, at=at)

    def advance(self, shards: Collection[Shard], *, fresh_at: float, at: float) -> None:
        """Vacate and fill places as *shards* want it; what settles together changes at the end of its window."""
        self._flapping.forget(now=at)
        by_member: dict[str, list[Candidate]] = {}
        resources: dict[str, frozenset[str] | None] = {}
        may_stay, alive = set(), set()
        for shard in shards:
            if shard.may_be_member:
                alive.add(shard.member)
            if not self._may_stay(shard, shards, at=at):
                continue
            may_stay.add(shard.name)
            if self.why_unplaced(shard, at=at) is None:
                candidate = Candidate(shard.name, shard.member, shard.state(fresh_at), shard.facts.created)
                by_member.setdefault(shard.member, []).append(candidate)
                resources[shard.name] = shard.facts.resources
        wanted = {}
        for member, candidates in by_member.items():
            settings = self._spec.member(member)
            if not settings.cordoned:
                name = plan_filler(candidates).name
                wanted[member] = PlacesWanted(name, settings.weight, resources[name])
        departed = frozenset(
            shard.name
            for shard in shards
            if (shard.facts.holding is Holding.RELEASED or shard.facts.leaving) and shard.member not in alive
        )
        self.places.follow(wanted, may_fill=frozenset(may_stay), departed=departed, at=at)

    def why_unplaced(self, shard: Shard, *, at: float) -> Unplaced | None:
        """Reason that keeps *shard* from its member's place; None if it may fill the place, or fills it."""
        if shard.facts.leaving:
            return Unplaced.LEAVING
        if self.places.filler(shard.member) == shard.name:
            return None
        if not shard.works:
            return Unplaced.UNSEEN if shard.facts.synced or not shard.facts.protocol else Unplaced.FILLING
        return Unplaced.FLAPPING if at < self.due_at(shard) else None

    def due_at(self, shard: Shard) -> float:
        """Instant from which *shard* may fill its member's place although its member flaps."""
        return shard.born_at + self._flapping.wait_s(shard.member, settle_s=self._spec.settle_s)

    def is_hold_over(self, shard: Shard, shards: Collection[Shard], *, at: float) -> bool:
        """Whether a released Lease is to be taken: no hold asked for, hold passed, place gone, next shard there."""
        if not shard.facts.hold or at >= shard.entered_at + self._spec.hold_s:
            return True
        if self._spec.member(shard.member).cordoned or shard.facts.leaving or not shard.facts.fit:
            return True
        return any(
            other.is_held and other.member == shard.member and self.why_unplaced(other, at=at) is None
            for other in shards
        )

    def _may_stay(self, shard: Shard, shards: Collection[Shard], *, at: float) -> bool:
        """Whether *shard* keeps its member's place, if it fills it."""
        if shard.is_missing or not shard.facts.fit or shard.facts.leaving:
            return False
        return shard.is_held or (
            shard.facts.holding is Holding.RELEASED and not self.is_hold_over(shard, shards, at=at)
        )
