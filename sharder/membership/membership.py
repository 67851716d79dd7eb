"""Members on the ring, dead shards, and the writes that their Leases need: the protocol's section 4.

A state machine without I/O. Its input is each observation of the API, with its instant on the sharder's own monotonic
clock; its output is intents and views. The leader acts on the intents. Standbys feed and read the same machine, so that
a new leader has the old one's knowledge. It never reads a wall clock, and never raises on the content of a Lease.

Feeding, in short: every version of a Lease goes to `observe_one`, a complete consistent list to `observe_list`,
a deletion to `gone`, a bookmark of the Lease watch to `note_fresh`. Read the Leases at least every
`read_interval_s`: silence counts only as far as the last fresh read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kubeio.protocol import is_shard_name
from kubeio.watches.versions import order
from ring.ring import HashRing
from sharder.errors import FieldProblem
from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.flapping import Flapping
from sharder.membership.freshness import DURATIONS, NEVER, ReadFreshness, failing_members
from sharder.membership.hash_rings import BUILT_AT_ONCE, ResourceRings, RingInputs
from sharder.membership.places import Candidate, Places, PlacesWanted, plan_filler
from sharder.membership.shards import (
    Holding,
    Shard,
    ShardState,
    first_seen,
    holding_of,
    newer,
    read_lease,
    without_lease,
)
from sharder.membership.view import (
    AssignmentHold,
    OwnerState,
    ShardView,
    Unplaced,
    View,
    WaitReason,
    owner_state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kubeio.models import Lease
    from sharder.ringspec.spec import RingSpec

ORPHAN_AFTER_S: Final = 60.0
"""Objects with a dead name are searched for this long after its death, and as often again while one carries it."""
MOST_STRANGERS: Final = 100
"""Names that no shard's Lease ever bore and that are not dead yet: each costs a Lease and a minute's wait."""
DEFERRED_S: Final = 60.0
"""A name that waits for care is counted for so long after its last report."""
MOST_TOMBSTONES: Final = 1000
"""The same names with the dead ones, whose Leases stay while objects carry them."""
FORGET_AFTER_S: Final = 600.0
"""Memory of deletions and foreign names; both are found again if they matter."""


class Membership:
    """The members of one ring. All methods are sync, cheap, and take the instant as `at`, which never goes back."""

    def __init__(self, spec: RingSpec, *, builds_elsewhere: bool = False) -> None:
        """*builds_elsewhere*: the caller builds large rings off the event loop: `rings_wanted`."""
        self._spec = spec
        self._builds_elsewhere = builds_elsewhere
        self._rings_wanted: RingInputs | None = None
        self._keys = spec.keys
        self._shards: dict[str, Shard] = {}
        self._foreign: dict[str, float] = {}
        self._buried: dict[str, tuple[str, float]] = {}
        self._misnamed: dict[str, tuple[FieldProblem, ...]] = {}
        self._admissible = 0
        self._deferred: dict[str, float] = {}
        self._refused: dict[str, FieldProblem] = {}
        self._forced: set[str] = set()
        self._orphan_checks: dict[str, float] = {}
        self._orphaned: set[str] = set()
        self._releasing_since = math.inf
        self._complete_since = math.inf
        self._silent_takes: dict[str, float] = {}
        self._flapping = Flapping()
        self._places = Places(settle_s=spec.settle_s)
        self._ring: HashRing | None = None
        self._rings: Mapping[str, HashRing | None] = {}
        self._ring_made_of: object = None
        self._ring_problem: FieldProblem | None = None
        self._now = NEVER
        self._synced = False
        self._freshness = ReadFreshness()
        self._version = 0
        self._ring_version = 0
        self._last: View | None = None
        self._last_ring_content: object = None

    # ---- what the API showed ----------------------------------------------------------------------------------

    def configure(self, spec: RingSpec, *, releasing_at: float | None = None) -> None:
        """Work under a newer version of the same ring (its domain and lease namespace are immutable).

        *releasing_at*: now, if the ring is being deleted; the first such call counts.
        """
        self._spec = spec
        self._releasing_since = math.inf if releasing_at is None else min(self._releasing_since, releasing_at)
        self._places.settle_s = spec.settle_s
        for name, shard in self._shards.items():
            if shard.lease is not None:
                facts = read_lease(shard.lease, keys=self._keys, max_duration_s=spec.max_lease_duration_s)
                self._shards[name] = replace(shard, facts=facts)

    def observe_list(
        self, leases: Iterable[Lease], *, resource_version: str, begun_at: float, at: float
    ) -> bool:
        """A complete consistent list of the ring's Leases (selector: ring label), asked for at *begun_at*.

        Known names that are not in it are gone. Fresh as of *begun_at*. True if it showed more than renewals.
        """
        seen = set()
        has_changed = not self._synced
        for lease in leases:
            seen.add(lease.metadata.name)
            has_changed |= self.observe_one(lease, at=at)
        self._misnamed = {name: problems for name, problems in self._misnamed.items() if name in seen}
        absent = (name for name in self._shards.keys() - seen if not self._shards[name].stray)
        for name in sorted(absent):
            has_changed |= self.gone(name, at=at, resource_version=resource_version)
        self._synced = True
        self.note_fresh(at=begun_at)
        return has_changed

    def observe_one(self, lease: Lease, *, at: float) -> bool:
        """One version of a Lease: watch event, GET, or the answer to a write of ours. Older ones are ignored.

        False if nothing but its renewal was new, and its shard was ready before: no decision changes.
        """
        name = lease.metadata.name
        shard = self._shards.get(name)
        if not self._is_news(lease, shard):
            return False
        if lease.metadata.labels.get(self._keys.ring_label) != self._keys.ring:
            self._observe_stray(lease, shard, at=at)
            return True
        facts = read_lease(lease, keys=self._keys, max_duration_s=self._spec.max_lease_duration_s)
        if not is_shard_name(name):
            self._misnamed[name] = facts.problems
            return True
        self._foreign.pop(name, None)
        if shard is None:
            seen = first_seen(facts, lease, at=at, founder=not self._synced)
        else:
            self._note_silent_take(shard, facts.holding, contested=facts.contested, at=at)
            seen = shard.seen_again(facts, lease, at=at)
            if not seen.is_held:
                self._note_end(shard, at=at)
        self._shards[name] = seen
        if facts.holding is not Holding.HELD:
            self._forced.discard(name)
        was_ready = shard is not None and shard.state(self._freshness.fresh_at) is ShardState.READY
        return not (shard is not None and was_ready and seen.is_pure_renewal(shard))

    def gone(self, name: str, *, at: float, resource_version: str = "") -> bool:
        """The Lease *name* is not there (any more): watch DELETED, 404, or absence from a consistent list.

        Dead names are forgotten; for any other a tombstone is wanted before its objects may move. False if that was
        known.
        """
        shard = self._shards.get(name)
        if shard is None or shard.lease is None:
            return False
        if resource_version and newer(shard.resource_version, resource_version):
            return False
        self._note_end(shard, at=at)
        self._buried[name] = (resource_version or shard.resource_version, at)
        self._forced.discard(name)
        self._orphaned.discard(name)
        self._orphan_checks.pop(name, None)
        if shard.state(self._freshness.fresh_at) is ShardState.DEAD:
            del self._shards[name]
        else:
            self._shards[name] = replace(
                shard, lease=None, stray=False, changed_at=at, counted_from=at, entered_at=at
            )
        return True

    def version_of(self, name: str) -> str:
        """The newest resourceVersion seen of the Lease *name*; empty if none was."""
        shard = self._shards.get(name)
        return shard.resource_version if shard is not None else ""

    def held_leases(self) -> list[Lease]:
        """The Leases that their shards hold."""
        return [shard.lease for shard in self._shards.values() if shard.is_held and shard.lease is not None]

    def unknown_name_seen(self, name: str, *, at: float) -> bool:
        """An object carries *name* and no Lease of ours does: a tombstone is wanted, or the name is dead at once.

        False if nothing follows now: the name is known, or too many like it are under care. Report it again then.
        """
        if name in self._foreign:
            self._foreign[name] = at
        elif name not in self._shards and is_shard_name(name):
            if self._admissible > 0:
                self._admissible -= 1
                self._deferred.pop(name, None)
                self._shards[name] = without_lease(
                    name, at=at, max_duration_s=self._spec.max_lease_duration_s
                )
                return True
            if name in self._deferred or len(self._deferred) < MOST_TOMBSTONES:
                self._deferred[name] = at
        return False

    @property
    def deferred(self) -> int:
        """Names reported within the last minute that wait until fewer are under care; counted up to 1,000."""
        return len(self._deferred)

    def tombstone_refused(self, name: str, *, why: str) -> None:
        """The API server refused a Lease for *name*: a policy or a missing right forbids it, and its objects stay.

        Every name that gets here can be a Lease's, so a refusal says nothing about the process that had it.
        """
        self._refused[name] = FieldProblem(
            f"leases/{name}",
            name,
            f"has objects and no Lease, and the sharder may not create one ({why}): its objects wait",
            "let the sharder's account create Leases in the ring's lease namespace",
        )

    def orphan_confirmed(self, name: str, *, begun_at: float) -> None:
        """A consistent list begun at *begun_at* found no object with the dead *name*."""
        shard = self._shards.get(name)
        if (
            shard is not None
            and shard.state(self._freshness.fresh_at) is ShardState.DEAD
            and begun_at >= shard.entered_at
        ):
            self._orphaned.add(name)

    def orphan_refuted(self, name: str, *, at: float) -> None:
        """Some object still carries the dead *name*: check again later."""
        self._orphan_checks[name] = at + ORPHAN_AFTER_S

    def force(self, name: str) -> None:
        """Policy or a person wants *name*'s Lease taken although it may be worked under."""
        if name in self._shards:
            self._forced.add(name)

    def note_fresh(self, *, at: float) -> None:
        """Our reads are complete as of *at* (a bookmark, or when a consistent read began).

        After a gap, longer than a Lease's own duration or known by `note_gap`, that Lease's silence starts anew.
        """
        gap_s = self._freshness.note_fresh(at=at, shortest_s=self._shortest_s(default=float("inf")))
        for name, shard in self._shards.items():
            if gap_s > shard.patience_s:
                self._shards[name] = replace(shard, counted_from=max(shard.counted_from, at))

    def note_watch(self, *, since: float) -> None:
        """The Lease watch shows every version after the list begun at *since*; infinity: it lists anew."""
        self._complete_since = since

    def note_gap(self) -> None:
        """Our reads failed for a while, for certain: nothing counts until the next fresh one."""
        self._freshness.note_gap()

    @property
    def rings_wanted(self) -> RingInputs | None:
        """Large rings that are to be made, and shown to `rings_made`; until then the last ones go on."""
        return self._rings_wanted

    def rings_made(self, wanted: RingInputs, made: ResourceRings | FieldProblem) -> None:
        """Record *made*, the result of *wanted*; these inputs may be older than the ones wanted now."""
        self._ring_made_of, self._rings_wanted = wanted.made_of, None
        if isinstance(made, FieldProblem):
            self._ring_problem = made
        else:
            self._ring, self._rings, self._ring_problem = made.whole, made.apart, None

    @property
    def read_interval_s(self) -> float:
        """Longest interval between consistent reads of the Leases, so that silence is noticed in time."""
        return min(5.0, max(0.2, self._shortest_s(default=15.0) / 6))

    # ---- what follows -----------------------------------------------------------------------------------------

    def decide(self, *, at: float) -> list[Intent]:
        """Intents for the leader to carry out now. Repeats them until the answers have been observed."""
        return self._decide(self._advance(at))

    def view(self, *, at: float) -> View:
        """Membership at *at*."""
        return self._view(self._advance(at))

    def next_deadline(self, *, at: float) -> float | None:
        """The next instant after *at* at which `decide` or `view` may change although nothing was observed."""
        return self._next_deadline(self._advance(at))

    def turn(self, *, at: float, acting: bool) -> tuple[list[Intent], View, float | None]:
        """`decide` (nothing unless *acting*), `view` and `next_deadline`; the clock and the places advance once."""
        at = self._advance(at)
        return self._decide(at) if acting else [], self._view(at), self._next_deadline(at)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _decide(self, at: float) -> list[Intent]:
        if not self._synced:
            return []
        failing = failing_members(
            self._shards.values(), fresh_at=self._freshness.fresh_at, recent_takes=self._silent_takes, now=at
        )
        intents: list[Intent] = []
        for shard in sorted(self._shards.values(), key=lambda shard: (not shard.had_lease, shard.name)):
            patience = DURATIONS + 1 if shard.member in failing else DURATIONS
            intents.extend(self._decide_one(shard, patience_s=patience * shard.patience_s, at=at))
        return intents

    def _view(self, at: float) -> View:
        shards = {shard.name: self._shard_view(shard) for shard in self._shards.values()}
        places = self._places.current()
        known = {name: owner_state_of(shard.state) for name, shard in shards.items() if shard.had_lease}
        fates = {
            name: owner_state for name, owner_state in known.items() if owner_state is not OwnerState.LIVE
        }
        filled = {member: place for member, place in places.items() if member in (self._ring or ())}
        rings = (self._ring, self._rings)  # a shard that joins them has no object to move yet
        content = (fates, frozenset(self._foreign), filled, rings, self._unknown_are_dead)
        if content != self._last_ring_content:
            self._ring_version += 1
            self._last_ring_content = content
        view = View(
            version=self._version,
            ring_version=self._ring_version,
            at=at,
            shards=shards,
            foreign=frozenset(self._foreign),
            places=places,
            ring=self._ring,
            hold=self._hold(at),
            settles_at=self._places.next_deadline(),
            problems=self._problems(),
            mains=tuple(str(entry.main) for entry in self._spec.resources),
            rings=self._rings,
            unknown_are_dead=self._unknown_are_dead,
        )
        if self._last is None or replace(self._last, version=0, at=0.0) != replace(view, version=0, at=0.0):
            self._version += 1
            view = replace(view, version=self._version)
            self._last = view
        return view

    def _next_deadline(self, at: float) -> float | None:
        return min((deadline for deadline in self._deadlines(at) if deadline > at), default=None)

    def _is_news(self, lease: Lease, shard: Shard | None) -> bool:
        version = lease.metadata.resource_version
        if lease.metadata.namespace not in ("", self._spec.lease_namespace):
            return False
        if shard is not None:
            return newer(version, shard.resource_version) or (
                shard.lease is None and not shard.resource_version
            )
        buried = self._buried.get(lease.metadata.name)
        return buried is None or newer(version, buried[0])

    def _observe_stray(self, lease: Lease, shard: Shard | None, *, at: float) -> None:
        """A Lease under a name of ours that is not of this ring (protocol: a name without a Lease).

        One that is still contested is ours, even without its label: its wait must not be cut short.
        """
        if shard is None:
            return
        name, meta = lease.metadata.name, lease.metadata
        is_over = holding_of(lease) is Holding.TAKEN and self._keys.contested not in meta.annotations
        if meta.labels.get(self._keys.ring_label) or is_over:
            del self._shards[name]
            self._foreign[name] = at
            return
        self._shards[name] = replace(
            shard, lease=lease, resource_version=lease.metadata.resource_version, stray=True
        )

    def _note_silent_take(self, shard: Shard, holding: Holding, *, contested: bool, at: float) -> None:
        if shard.is_held and holding is Holding.TAKEN and not contested:
            self._silent_takes[shard.member] = at

    def _note_end(self, shard: Shard, *, at: float) -> None:
        """*shard* lost its Lease, or gave it back. The age of one that was there before this sharder is not known."""
        if shard.is_held and not shard.founder:
            lived_s = shard.changed_at - shard.born_at
            self._flapping.note_end(shard.member, lived_s=lived_s, duration_s=shard.patience_s, at=at)

    def _advance(self, at: float) -> float:
        self._now = max(self._now, at)
        self._forget()
        if self._synced:
            self._turn_places()
        return self._now

    def _forget(self) -> None:
        self._flapping.forget(now=self._now)
        horizon = self._now - FORGET_AFTER_S
        self._foreign = {name: at for name, at in self._foreign.items() if at > horizon}
        if self._refused:
            self._refused = {
                name: problem for name, problem in self._refused.items() if self._is_missing(name)
            }
        self._buried = {name: entry for name, entry in self._buried.items() if entry[1] > horizon}
        self._silent_takes = {m: at for m, at in self._silent_takes.items() if at > horizon}
        self._deferred = {name: at for name, at in self._deferred.items() if at > self._now - DEFERRED_S}
        if self._unknown_are_dead:
            self._shards = {n: shard for n, shard in self._shards.items() if shard.had_lease or shard.lease}
        strangers = [shard for shard in self._shards.values() if not shard.had_lease]
        undead = sum(1 for shard in strangers if shard.state(self._freshness.fresh_at) is not ShardState.DEAD)
        self._admissible = max(0, min(MOST_STRANGERS - undead, MOST_TOMBSTONES - len(strangers)))

    def _is_missing(self, name: str) -> bool:
        shard = self._shards.get(name)
        return shard is not None and shard.lease is None

    def _turn_places(self) -> None:
        by_member: dict[str, list[Candidate]] = {}
        may_stay, alive = set(), set()
        for shard in self._shards.values():
            if shard.is_held and shard.facts.fit:
                alive.add(shard.member)
            if not self._may_stay(shard):
                continue
            may_stay.add(shard.name)
            if self._why_unplaced(shard) is None:
                candidate = Candidate(
                    shard.name, shard.member, shard.state(self._freshness.fresh_at), shard.facts.created
                )
                by_member.setdefault(shard.member, []).append(candidate)
        wanted = {
            member: self._wanted(plan_filler(candidates))
            for member, candidates in by_member.items()
            if not self._spec.member(member).cordoned
        }
        departed = frozenset(
            shard.name
            for shard in self._shards.values()
            if shard.facts.holding is Holding.RELEASED and shard.member not in alive
        )
        self._places.turn(wanted, may_fill=frozenset(may_stay), departed=departed, at=self._now)
        self._build_ring()

    def _wanted(self, filler: Candidate) -> PlacesWanted:
        weight = self._spec.member(filler.member).weight
        return PlacesWanted(filler.name, weight, self._shards[filler.name].facts.resources)

    def _build_ring(self) -> None:
        """One ring of all members, and one for each main resource that not all of them work."""
        places = self._places.current().values()
        mains = tuple(str(entry.main) for entry in self._spec.resources)
        members = {place.member: place.weight for place in places}
        apart = {place.member: place.resources for place in places if not _covers(place.resources, mains)}
        wanted = RingInputs(members, apart, mains, self._spec, like=self._ring)
        if wanted.made_of == self._ring_made_of:
            self._rings_wanted = None
        elif self._builds_elsewhere and wanted.tokens > BUILT_AT_ONCE:
            self._rings_wanted = wanted
        else:
            self.rings_made(wanted, wanted.make())

    def _may_stay(self, shard: Shard) -> bool:
        """Whether *shard* keeps its member's place, if it fills it."""
        if shard.is_missing or not shard.facts.fit:
            return False
        return shard.is_held or (shard.facts.holding is Holding.RELEASED and not self._hold_is_over(shard))

    def _why_unplaced(self, shard: Shard) -> Unplaced | None:
        """Reason that keeps *shard* from its member's place; None if it may fill the place, or fills it."""
        if self._places.filler(shard.member) == shard.name:
            return None
        if not shard.works:
            return Unplaced.UNSEEN if shard.facts.synced or not shard.facts.protocol else Unplaced.FILLING
        return Unplaced.FLAPPING if self._now < self._place_due_at(shard) else None

    def _place_due_at(self, shard: Shard) -> float:
        return shard.born_at + self._flapping.wait_s(shard.member, settle_s=self._spec.settle_s)

    def _hold_is_over(self, shard: Shard) -> bool:
        """Whether a released Lease is to be taken: no hold asked for, hold passed, place gone, next shard there."""
        if not shard.facts.hold or self._now >= shard.entered_at + self._spec.hold_s:
            return True
        if self._spec.member(shard.member).cordoned or not shard.facts.fit:
            return True
        return any(
            other.is_held and other.member == shard.member and self._why_unplaced(other) is None
            for other in self._shards.values()
        )

    def _decide_one(self, shard: Shard, *, patience_s: float, at: float) -> Iterator[Intent]:
        state = shard.state(self._freshness.fresh_at)
        if shard.lease is None:
            yield CreateTombstone(shard.name, shard.member, shard.patience_s)
            return
        match state:
            case ShardState.MISSING:
                yield Take(shard.lease, contested=True, reason="its name is on objects of the ring")
            case ShardState.CONTESTED if at >= self._contested_until(shard):
                yield ClearContested(shard.lease)
            case ShardState.DEAD:
                yield from self._decide_dead(shard, at=at)
            case ShardState.RELEASED if self._hold_is_over(shard):
                yield Take(shard.lease, contested=False, reason="released")
            case ShardState.UNCERTAIN if shard.silence_s(self._freshness.fresh_at) >= patience_s:
                contested = not shard.has_known_duration
                yield Take(shard.lease, contested=contested, reason="silent for two durations")
            case _ if shard.name in self._forced:
                yield Take(shard.lease, contested=True, reason="forced")
            case _:
                yield from self._decide_mark(shard, state)

    def _decide_dead(self, shard: Shard, *, at: float) -> Iterator[Intent]:
        if shard.lease is not None and shard.name in self._orphaned:
            yield DeleteOrphan(shard.lease)
        elif at >= self._orphan_check_at(shard):
            yield NeedOrphanCheck(shard.name)
        else:
            yield from self._decide_mark(shard, ShardState.DEAD)

    def _decide_mark(self, shard: Shard, state: ShardState) -> Iterator[Intent]:
        if shard.lease is not None and shard.lease.metadata.labels.get(self._keys.state) != state.value:
            yield MarkState(shard.lease, state)

    def _contested_until(self, shard: Shard) -> float:
        return shard.entered_at + max(self._spec.max_lease_duration_s, shard.patience_s)

    @property
    def _every_shard_seen_at(self) -> float:
        """The instant after which an unknown name has no process: one whose Lease went before has stopped.

        By then each sharder that still acts knows of the deletion too, and gives no object that a late birth may have
        found under its name to another shard.
        """
        return max(self._complete_since, self._releasing_since) + self._spec.max_lease_duration_s

    @property
    def _unknown_are_dead(self) -> bool:
        """No tombstone is needed: no object gets an owner that a late birth under such a name could meet."""
        return self._synced and self._now >= self._every_shard_seen_at

    def _orphan_check_at(self, shard: Shard) -> float:
        return self._orphan_checks.get(shard.name, shard.entered_at + ORPHAN_AFTER_S)

    def _shortest_s(self, *, default: float) -> float:
        return min((shard.patience_s for shard in self._shards.values() if shard.is_held), default=default)

    def _hold(self, at: float) -> AssignmentHold | None:
        filled = sum(1 for place in self._places.current().values() if place.shard is not None)
        if not self._synced:
            return AssignmentHold(WaitReason.NOT_SYNCED)
        if at < self._freshness.unbroken_since + self._spec.start_delay_s:
            return AssignmentHold(
                WaitReason.START_DELAY, self._freshness.unbroken_since + self._spec.start_delay_s
            )
        if self._ring is None:
            return AssignmentHold(WaitReason.NO_MEMBERS, self._places.next_deadline())
        return AssignmentHold(WaitReason.MIN_MEMBERS) if filled < self._spec.min_members else None

    def _shard_view(self, shard: Shard) -> ShardView:
        facts = shard.facts
        return ShardView(
            name=shard.name,
            member=shard.member,
            state=shard.state(self._freshness.fresh_at),
            hands_over=facts.hands_over,
            fit=facts.fit,
            since=shard.entered_at,
            duration_s=shard.patience_s,
            had_lease=shard.had_lease,
            unplaced=self._why_unplaced(shard) if shard.is_held and facts.fit else None,
            resources=facts.resources,
            heard=order(shard.heard),
        )

    def _problems(self) -> tuple[FieldProblem, ...]:
        by_name = self._misnamed | {name: shard.facts.problems for name, shard in self._shards.items()}
        of_leases = [problem for _, problems in sorted(by_name.items()) for problem in problems]
        of_leases += [problem for _, problem in sorted(self._refused.items())]
        of_leases += self._unwatched()
        return tuple(of_leases if self._ring_problem is None else [self._ring_problem, *of_leases])

    def _unwatched(self) -> list[FieldProblem]:
        """Controlled kinds that a live shard does not watch although it works what controls them: added meanwhile."""
        found = []
        for shard in sorted(self._shards.values(), key=lambda shard: shard.name):
            if shard.is_held and shard.facts.fit and (lacks := self._lacks(shard.facts.resources)):
                found.append(
                    FieldProblem(
                        f"leases/{shard.name}.metadata.annotations[{self._keys.resources}]",
                        ",".join(sorted(shard.facts.resources or ())),
                        f"lacks {', '.join(lacks)}: its shard does not watch them, so they are not given to it",
                        "roll the replicas: they learn at their start what the ring controls",
                    )
                )
        return found

    def _lacks(self, resources: frozenset[str] | None) -> list[str]:
        if resources is None:
            return []
        worked = [entry for entry in self._spec.resources if str(entry.main) in resources]
        return sorted({str(kind) for entry in worked for kind in entry.controlled} - resources)

    def _deadlines(self, at: float) -> Iterator[float]:
        settles_at = self._places.next_deadline()
        if settles_at is not None:
            yield settles_at
        yield self._freshness.unbroken_since + self._spec.start_delay_s
        if self._releasing_since < math.inf:
            yield self._every_shard_seen_at
        for shard in self._shards.values():
            if shard.is_held:
                yield from (shard.counted_from + n * shard.patience_s for n in (1, DURATIONS, DURATIONS + 1))
                yield self._place_due_at(shard)
            elif shard.facts.holding is Holding.RELEASED:
                yield shard.entered_at + self._spec.hold_s
            elif shard.facts.contested:
                yield self._contested_until(shard)
            else:
                yield self._orphan_check_at(shard)


def _covers(resources: frozenset[str] | None, mains: Sequence[str]) -> bool:
    return resources is None or resources.issuperset(mains)
