"""Progress of one ring, read from its components: for its status and its metrics.

Owns no state but the last convergences; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from sharder.live.facts import ReportedObjects
from sharder.membership.shards import ShardState
from sharder.rings.counts import ObjectCounts, count_misplaced, count_objects
from sharder.rings.settling_pace import SettlingPace
from sharder.rings.status import (
    Convergence,
    Rebalanced,
    RingProgress,
    plan_conditions,
    plan_status,
    shares_by_shard,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sharder.membership.activation import Activation
    from sharder.membership.view import View
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.scan import Scan
    from sharder.rings.status_writer import StatusWriter
    from sharder.unowned.pending import PendingObjects
    from sharder.writing.ring_context import RingContext


COUNT_EVERY_S: Final = 5.0
COUNT_OFTEN_S: Final = 1.0
"""Objects are counted so often while something is to do: a few microseconds for each replica."""
LATE_NAMED: Final = 3
"""Objects past their timeout that the condition names, the longest ones."""


class StatusCollector:
    """Collects the progress of one ring from its components."""

    def __init__(
        self,
        context: RingContext,
        activation: Activation,
        pending: PendingObjects,
        handoffs: Handoffs,
        scan: Scan,
        *,
        unserved: Sequence[str],
    ) -> None:
        """*unserved*: a sentence for each resource that is not served."""
        self._context = context
        self._activation = activation
        self._unserved = unserved
        self._pending = pending
        self._handoffs = handoffs
        self._scan = scan
        self._disturbed_at = context.clock.now()
        self._unknown_named = 0
        self._count_at = 0.0
        self._counts: ObjectCounts | None = None
        self._count_objects_at = 0.0
        self._pace = SettlingPace()
        self._to_do = 0
        self._converged_version: int | None = None
        self._last: Convergence | None = None
        self._rebalanced: Rebalanced | None = None

    def status(self, status_writer: StatusWriter, *, generation: int) -> Mapping[str, object]:
        """The ring's status now; sets the gauges on the way."""
        view, progress = self._context.states.current.view, self._progress()
        self._measure(view, progress)
        conditions = plan_conditions(view, progress)
        self._context.metrics.set_conditions(self._ring, {each.type: each.status for each in conditions})
        dated = status_writer.dated(conditions, generation=generation)
        return plan_status(view, progress, generation=generation, conditions=dated)

    def reported(self) -> ReportedObjects | None:
        """Objects as counted last; None if a shard does not report them."""
        counts = self._counts
        if counts is None:
            return None
        return ReportedObjects(sum(counts.by_shard.values()) + counts.unassigned, counts.by_shard)

    async def follow(self) -> None:
        """Count state changes of shards and members, until cancelled."""
        view = self._context.states.current.view
        for state in ShardState:  # the first increase of a series is seen only if it was scraped before
            self._context.metrics.state_changes.labels(ring=self._ring, state=state.value)
        self._count_states({}, view)
        while True:
            newer = await self._context.membership.wait_newer(view.version)
            self._count_states({name: shard.state for name, shard in view.shards.items()}, newer)
            self._count_members(view, newer)
            if newer.ring_version != view.ring_version:
                self._disturbed_at = self._context.clock.now()
                self._context.objects.moves.begin_anew()
            view = newer

    def _progress(self) -> RingProgress:
        now = self._context.clock.now()
        overdue = self._handoffs.budget.overdue(at=now)
        late = Counter(handoff.owner for handoff in overdue.values())
        self._note_convergence()
        released = self._released()
        unassigned = len(self._pending) if released is None else 0
        in_flight = self._handoffs.budget.in_flight()
        to_do = self._count_objects(now, unassigned, in_flight)
        return RingProgress(
            unassigned=unassigned,
            in_flight=in_flight,
            counts=self._counts,
            per_s=self._pace.per_s if to_do else None,
            left_s=self._pace.left_s if to_do else None,
            late=late,
            refused=len(self._context.objects.refusals),
            refusals=self._context.objects.refusals.messages(),
            late_objects=[str(ref) for ref in islice(overdue, LATE_NAMED)],
            is_converged=self._scan.is_converged,
            paused=self._context.spec.paused,
            denied=self._context.permissions.messages(),
            failing=[*self._unserved, *self._context.permissions.failures()],
            last=self._last,
            rebalanced=self._rebalanced,
            removed=self._removed(),
            still_labelled=self._scan.still_labelled,
            released=released,
            deferred=self._context.membership.deferred,
            former_holder=self._activation.former_holder,
            former_problem=self._activation.problem,
            activated=self._activation.is_granted,
            unknown_named=self._count_unknown_named(now),
        )

    def _count_objects(self, now: float, unassigned: int, in_flight: Mapping[str, int]) -> int:
        """Count the objects if that is due; returns how many are to do."""
        state, spec = self._context.states.current, self._context.spec
        is_done = self._scan.is_converged and not unassigned
        if now >= self._count_objects_at:
            self._count_objects_at = now + (COUNT_EVERY_S if is_done else COUNT_OFTEN_S)
            leases, mains = (
                self._context.membership.held_leases(),
                [str(entry.main) for entry in spec.resources],
            )
            owned = count_objects(leases, keys=self._context.keys, mains=mains)
            misplaced = 0
            if owned is not None and not self._scan.is_converged and not state.terms.releasing:
                shares = shares_by_shard(state.view)
                misplaced = count_misplaced(owned, shares, in_flight, unassigned=unassigned)
            self._counts = ObjectCounts(owned, misplaced, unassigned) if owned is not None else None
            self._to_do = sum((owned or {}).values()) if state.terms.releasing else unassigned + misplaced
            self._pace.look(now, self._to_do)
        return self._to_do

    def _count_unknown_named(self, now: float) -> int:
        """Objects that wait because no shard has the name on them; counted every few seconds, a microsecond each."""
        membership, shard = self._context.membership, self._context.keys.shard
        if now >= self._count_at:
            view = membership.view
            is_possible = membership.deferred or any(map(view.is_unknown_name, view.shards))
            owners = (self._pending.label(name, shard) for name in self._pending.names() if is_possible)
            self._unknown_named = sum(
                1 for owner in owners if owner is not None and view.is_unknown_name(owner)
            )
            self._count_at = now + COUNT_EVERY_S
        return self._unknown_named

    def _released(self) -> int | None:
        """Objects given up since this sharder began to; None unless the ring is being deleted."""
        if not self._context.states.current.terms.releasing:
            return None
        return self._handoffs.given_up + self._context.objects.stripped

    def _removed(self) -> list[str]:
        if self._scan.former_free.is_set():
            return []
        return [resource.group_resource for resource in self._context.kinds.former]

    def _note_convergence(self) -> None:
        scan = self._scan
        if (
            not scan.is_converged
            or scan.converged_version is None
            or scan.converged_version.ring == self._converged_version
        ):
            return
        if self._context.states.current.view.ring is None:
            return  # no member could own anything
        self._converged_version = scan.converged_version.ring
        took_s = max(0.0, scan.converged_at - self._disturbed_at)
        wall = self._context.clock.wall()
        at = wall.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._last = Convergence(at, took_s, scan.last_seen or 0)
        moves = self._context.objects.moves
        if moves.count:
            moving_s = moves.took_s(answered_at=self._handoffs.answered_at)
            self._rebalanced = Rebalanced(at, moving_s, moves.count)
        self._context.metrics.convergence_s.labels(ring=self._ring).set(took_s)
        self._context.metrics.converged_at_s.labels(ring=self._ring).set(wall.timestamp())

    def _measure(self, view: View, progress: RingProgress) -> None:
        metrics, ring = self._context.metrics, self._ring
        metrics.unowned.labels(ring=ring).set(progress.unassigned)
        oldest_s = 0.0
        if progress.unassigned:
            now, refused = self._context.clock.now(), self._context.objects.refusals
            oldest_s = self._pending.oldest_s(now, refused=refused)
        metrics.oldest_unowned_s.labels(ring=ring).set(oldest_s)
        metrics.misplaced.labels(ring=ring).set(self._scan.misplaced)
        metrics.in_flight.labels(ring=ring).set(sum(progress.in_flight.values()))
        metrics.deferred_names.labels(ring=ring).set(progress.deferred)
        metrics.refused.labels(ring=ring).set(progress.refused)
        metrics.missing_rights.labels(ring=ring).set(len(self._context.permissions))
        metrics.converged.labels(ring=ring).set(progress.is_converged and view.ring is not None)
        metrics.ring_version.labels(ring=ring).set(view.ring_version)
        if progress.counts is None:
            metrics.objects.remove_by_labels({"ring": ring})
        else:
            metrics.objects.labels(ring=ring).set(sum(progress.counts.by_shard.values()))
        metrics.paused.labels(ring=ring).set(progress.paused)
        members = self._context.spec.members.values()
        metrics.cordoned.labels(ring=ring).set(sum(member.cordoned for member in members))
        states = Counter(shard.state for shard in view.shards.values())
        for state in ShardState:
            metrics.shards.labels(ring=ring, state=state.value).set(states[state])
        self._measure_late(progress.late)

    def _measure_late(self, late: Mapping[str, int]) -> None:
        """Names live once: the series of one that is no longer late would stay for ever."""
        overdue = self._context.metrics.overdue
        overdue.remove_by_labels({"ring": self._ring})
        for shard, count in late.items():
            overdue.labels(ring=self._ring, shard=shard).set(count)

    def _count_states(self, before: Mapping[str, ShardState], view: View) -> None:
        for name, shard in view.shards.items():
            if before.get(name) is not shard.state:
                self._context.metrics.state_changes.labels(ring=self._ring, state=shard.state.value).inc()

    def _count_members(self, before: View, now: View) -> None:
        changes = self._context.metrics.ring_changes
        joined = now.ring_members.keys() - before.ring_members.keys()
        left = before.ring_members.keys() - now.ring_members.keys()
        changes.labels(ring=self._ring, change="joined").inc(len(joined))
        changes.labels(ring=self._ring, change="left").inc(len(left))

    @property
    def _ring(self) -> str:
        return self._context.spec.name
