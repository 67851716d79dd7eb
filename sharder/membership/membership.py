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
from sharder.membership.fillers import Fillers
from sharder.membership.freshness import ReadFreshness, failing_members
from sharder.membership.hash_rings import RingBuilder
from sharder.membership.lease_decisions import decide_lease, lease_deadlines
from sharder.membership.problems import lease_problems
from sharder.membership.shards import (
    NEVER,
    Holding,
    Shard,
    ShardState,
    first_seen,
    holding_of,
    newer,
    read_lease,
    without_lease,
)
from sharder.membership.unknown_names import UnknownNames
from sharder.membership.view import (
    AssignmentHold,
    ShardView,
    View,
    ViewVersions,
    WaitReason,
    view_of_shard,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kubeio.models import Lease
    from sharder.errors import FieldProblem
    from sharder.membership.actions import Intent
    from sharder.ringspec.spec import RingSpec

FORGET_AFTER_S: Final = 600.0
"""Memory of deletions and of takes."""


class Membership:
    """The members of one ring. All methods are sync, cheap, and take the instant as `at`, which never goes back."""

    def __init__(self, spec: RingSpec, *, builds_elsewhere: bool = False) -> None:
        """*builds_elsewhere*: the caller builds large rings off the event loop: `RingBuilder.wanted`."""
        self.rings = RingBuilder(builds_elsewhere=builds_elsewhere)
        self.longest_lease_s = 0.0
        """Longest lease duration with which a process may still work, as the ring's status says; 0: it says none."""
        self._spec = spec
        self._keys = spec.keys
        self._shards: dict[str, Shard] = {}
        self._unknown_names = UnknownNames()
        self._deleted_leases: dict[str, tuple[str, float]] = {}
        """Last version of each, and when it was seen to be gone."""
        self._misnamed: dict[str, tuple[FieldProblem, ...]] = {}
        self._forced: set[str] = set()
        self._silent_takes: dict[str, float] = {}
        self._fillers = Fillers(spec)
        self._freshness = ReadFreshness()
        self._versions = ViewVersions()
        self._now = NEVER
        self._synced = False

    # ---- what the API showed ----------------------------------------------------------------------------------

    def configure(self, spec: RingSpec, *, releasing_at: float | None = None) -> None:
        """Work under a newer version of the same ring (its domain and lease namespace are immutable).

        *releasing_at*: now, if the ring is being deleted; the first such call counts.
        """
        self._spec = spec
        unknown = self._unknown_names
        unknown.releasing_since = (
            math.inf if releasing_at is None else min(unknown.releasing_since, releasing_at)
        )
        self._fillers.configure(spec)
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
        if not self._is_newer(lease, shard):
            return False
        if lease.metadata.labels.get(self._keys.ring_label) != self._keys.ring:
            self._observe_stray(lease, shard, at=at)
            return True
        facts = read_lease(lease, keys=self._keys, max_duration_s=self._spec.max_lease_duration_s)
        if not is_shard_name(name):
            self._misnamed[name] = facts.problems
            return True
        self._unknown_names.note_known(name)
        if shard is None:
            seen = first_seen(facts, lease, at=at, in_first_list=not self._synced)
        else:
            self._note_silent_take(shard, facts.holding, contested=facts.contested, at=at)
            seen = shard.seen_again(facts, lease, at=at)
            if not seen.is_held:
                self._fillers.note_end(shard, at=at)
        self._shards[name] = seen
        if facts.holding is not Holding.HELD:
            self._forced.discard(name)
        was_ready = shard is not None and shard.state(self._freshness.fresh_at) is ShardState.READY
        return not (shard is not None and was_ready and seen.is_pure_renewal(shard))

    def gone(self, name: str, *, at: float, resource_version: str) -> bool:
        """The Lease *name* is not there (any more): 404, or absence from a consistent list.

        *resource_version*: the list's, or the newest that was seen of the Lease before it was asked for. A Lease that
        was seen at a newer one is there: it was made while the answer was under way. Dead names are forgotten; for any
        other a tombstone is wanted before its objects may move. False if that was known.
        """
        shard = self._shards.get(name)
        if shard is None or shard.lease is None or newer(shard.resource_version, resource_version):
            return False
        self._fillers.note_end(shard, at=at)
        self._deleted_leases[name] = (resource_version, at)
        self._forced.discard(name)
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

    @property
    def longest_held_s(self) -> float:
        """Longest duration that a Lease had which its shard holds; 0 if none is held."""
        held = (shard.longest_duration_s for shard in self._shards.values() if shard.is_held)
        return max(held, default=0.0)

    def unknown_name_seen(self, name: str, *, at: float) -> bool:
        """An object carries *name* and no Lease of ours does: a tombstone is wanted, or the name is dead at once.

        False if nothing follows now: the name is known, or too many like it are under care. Report it again then.
        """
        unknown = self._unknown_names
        if unknown.is_foreign(name, at=at) or name in self._shards or not is_shard_name(name):
            return False
        if not unknown.admit(name, at=at):
            return False
        self._shards[name] = without_lease(name, at=at, max_duration_s=self._longest_s)
        return True

    @property
    def deferred(self) -> int:
        """Names reported within the last minute that wait until fewer are under care; counted up to 1,000."""
        return self._unknown_names.deferred

    def begin_tombstone(self, name: str) -> bool:
        """Whether *name* still wants a tombstone, whose CREATE is sent now.

        From then on the name is not dead without a Lease: the CREATE may be carried out at any later moment.
        """
        is_wanted = name in self._shards and self._shards[name].lease is None
        if is_wanted:
            self._unknown_names.awaited.add(name)
        return is_wanted

    def tombstone_refused(self, name: str, *, why: str) -> None:
        """The API server refused a Lease for *name*: a policy or a missing right forbids it, and its objects stay.

        Every name that gets here can be a Lease's, so a refusal says nothing about the process that had it.
        """
        self._unknown_names.refuse(name, why=why)

    def orphan_confirmed(self, name: str, *, begun_at: float) -> None:
        """A consistent list begun at *begun_at* found no object with the dead *name*."""
        shard = self._shards.get(name)
        if (
            shard is not None
            and shard.state(self._freshness.fresh_at) is ShardState.DEAD
            and begun_at >= shard.entered_at
        ):
            self._shards[name] = replace(shard, is_orphaned=True)

    def orphan_refuted(self, name: str, *, at: float) -> None:
        """Some object still carries the dead *name*: check again later."""
        if name in self._shards:
            self._shards[name] = replace(self._shards[name], carried_at=at)

    def force(self, name: str) -> bool:
        """Policy or a person wants *name*'s Lease taken although it may be worked under; whether it will be.

        A Lease that its shard does not hold has an end already: a take would begin its contest anew.
        """
        shard = self._shards.get(name)
        if shard is None or not shard.is_held:
            return False
        self._forced.add(name)
        return True

    def note_fresh(self, *, at: float) -> None:
        """Our reads are complete as of *at* (a bookmark, or when a consistent read began).

        After a gap longer than a Lease's own duration, that Lease's silence starts anew.
        """
        gap_s = self._freshness.note_fresh(at=at, shortest_s=self._shortest_s(default=float("inf")))
        for name, shard in self._shards.items():
            if gap_s > shard.longest_duration_s:
                self._shards[name] = replace(shard, counted_from=max(shard.counted_from, at))

    def note_watch(self, *, since: float) -> None:
        """The Lease watch shows every version after the list begun at *since*; infinity: it lists anew."""
        self._unknown_names.complete_since = since

    @property
    def read_interval_s(self) -> float:
        """Longest interval between consistent reads of the Leases, so that silence is noticed in time."""
        return min(5.0, max(0.2, self._shortest_s(default=15.0) / 6))

    # ---- what follows -----------------------------------------------------------------------------------------

    def view(self, *, at: float) -> View:
        """Membership at *at*."""
        return self._view(self._advance(at))

    def iterate(self, *, at: float, acting: bool) -> tuple[list[Intent], View, float | None]:
        """Intents for the leader (*acting*) to carry out now, the view, and the instant at which time changes either.

        Intents are repeated until their answers were observed.
        """
        at = self._advance(at)
        return self._decide(at) if acting else [], self._view(at), self._next_deadline(at)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _decide(self, at: float) -> list[Intent]:
        if not self._synced:
            return []
        failing = failing_members(
            self._shards.values(), fresh_at=self._freshness.fresh_at, recent_takes=self._silent_takes, now=at
        )
        longest_s = self._longest_s
        intents = (
            decide_lease(
                shard,
                self._spec,
                at=at,
                fresh_at=self._freshness.fresh_at,
                longest_s=longest_s,
                is_failing=shard.member in failing,
                is_hold_over=self._is_hold_over(shard, at),
                is_forced=shard.name in self._forced,
            )
            for shard in sorted(self._shards.values(), key=lambda shard: (not shard.had_lease, shard.name))
        )
        return [intent for intent in intents if intent is not None]

    def _is_hold_over(self, shard: Shard, at: float) -> bool:
        """Whether a released Lease is to be taken. No replica starts under a ring that is being deleted."""
        if shard.facts.holding is not Holding.RELEASED:
            return False
        is_going = self._unknown_names.releasing_since < math.inf
        return is_going or self._fillers.is_hold_over(shard, self._shards.values(), at=at)

    def _view(self, at: float) -> View:
        places, rings = self._fillers.places, self.rings
        shards = self._shards.values()
        problems = lease_problems(
            shards, misnamed=self._misnamed, refused=self._unknown_names.refused, spec=self._spec
        )
        view = View(
            version=0,
            ring_version=0,
            at=at,
            shards={shard.name: self._shard_view(shard, at) for shard in shards},
            foreign=self._unknown_names.foreign,
            places=places.current(),
            ring=rings.whole,
            hold=self._hold(at),
            settles_at=places.next_deadline(),
            problems=problems if rings.problem is None else (rings.problem, *problems),
            mains=self._spec.mains,
            rings=rings.apart,
            unknown_are_dead=self._unknown_are_dead,
        )
        return self._versions.numbered(view)

    def _shard_view(self, shard: Shard, at: float) -> ShardView:
        could_fill = shard.is_held and shard.facts.fit
        unplaced = self._fillers.why_unplaced(shard, at=at) if could_fill else None
        return view_of_shard(shard, fresh_at=self._freshness.fresh_at, unplaced=unplaced)

    def _next_deadline(self, at: float) -> float | None:
        return min((deadline for deadline in self._deadlines() if at < deadline < math.inf), default=None)

    def _is_newer(self, lease: Lease, shard: Shard | None) -> bool:
        version = lease.metadata.resource_version
        if lease.metadata.namespace not in ("", self._spec.lease_namespace):
            return False
        if shard is not None:
            return newer(version, shard.resource_version) or (
                shard.lease is None and not shard.resource_version
            )
        deleted = self._deleted_leases.get(lease.metadata.name)
        return deleted is None or newer(version, deleted[0])

    def _observe_stray(self, lease: Lease, shard: Shard | None, *, at: float) -> None:
        """A Lease under a name of ours that is not of this ring (protocol: a name without a Lease).

        One that is still contested is ours, even without its label: its wait must not be cut short.
        """
        if shard is None:
            return
        name, meta = lease.metadata.name, lease.metadata
        is_held = holding_of(lease) in (Holding.TAKEN, Holding.FOREIGN)
        is_over = is_held and self._keys.contested not in meta.annotations
        if meta.labels.get(self._keys.ring_label) or is_over:
            del self._shards[name]
            self._unknown_names.note_foreign(name, at=at)
            return
        self._shards[name] = replace(
            shard, lease=lease, resource_version=lease.metadata.resource_version, stray=True
        )

    def _note_silent_take(self, shard: Shard, holding: Holding, *, contested: bool, at: float) -> None:
        if shard.is_held and holding is Holding.TAKEN and not contested:
            self._silent_takes[shard.member] = at

    def _advance(self, at: float) -> float:
        now = self._now = max(self._now, at)
        horizon = now - FORGET_AFTER_S
        self._deleted_leases = {n: entry for n, entry in self._deleted_leases.items() if entry[1] > horizon}
        self._silent_takes = {m: at for m, at in self._silent_takes.items() if at > horizon}
        if self._unknown_are_dead:
            awaited = self._unknown_names.awaited
            self._shards = {
                n: shard
                for n, shard in self._shards.items()
                if shard.had_lease or shard.lease or n in awaited
            }
        self._unknown_names.advance(self._shards, fresh_at=self._freshness.fresh_at, now=now)
        if self._synced:
            self._fillers.advance(self._shards.values(), fresh_at=self._freshness.fresh_at, at=now)
            self.rings.follow(self._fillers.places.current().values(), self._spec)
        return now

    @property
    def _unknown_are_dead_at(self) -> float:
        unknown = self._unknown_names
        is_going = unknown.releasing_since < math.inf
        return unknown.dead_at(max_lease_duration_s=self._longest_s) if is_going else math.inf

    @property
    def _unknown_are_dead(self) -> bool:
        return self._synced and self._now >= self._unknown_are_dead_at

    @property
    def _longest_s(self) -> float:
        """How long a process may work whose Lease was not seen: the ring's maximum was higher perhaps."""
        vouched = (shard for shard in self._shards.values() if shard.is_held and shard.facts.vouched)
        longest_s = max((shard.longest_duration_s for shard in vouched), default=0.0)
        return max(self._spec.max_lease_duration_s, self.longest_lease_s, longest_s)

    def _shortest_s(self, *, default: float) -> float:
        return min(
            (shard.longest_duration_s for shard in self._shards.values() if shard.is_held), default=default
        )

    def _hold(self, at: float) -> AssignmentHold | None:
        if not self._synced:
            return AssignmentHold(WaitReason.NOT_SYNCED)
        if at < self._starts_at:
            return AssignmentHold(WaitReason.START_DELAY, self._starts_at)
        if self.rings.whole is None:
            return AssignmentHold(WaitReason.NO_MEMBERS, self._fillers.places.next_deadline())
        filled = sum(1 for place in self._fillers.places.current().values() if place.shard is not None)
        return AssignmentHold(WaitReason.MIN_MEMBERS) if filled < self._spec.min_members else None

    @property
    def _starts_at(self) -> float:
        return self._freshness.unbroken_since + self._spec.start_delay_s

    def _deadlines(self) -> Iterator[float]:
        settles_at = self._fillers.places.next_deadline()
        if settles_at is not None:
            yield settles_at
        yield self._starts_at
        yield self._unknown_are_dead_at
        longest_s = self._longest_s
        for shard in self._shards.values():
            yield from lease_deadlines(shard, self._spec, longest_s=longest_s)
            if shard.is_held:
                yield self._fillers.due_at(shard)
