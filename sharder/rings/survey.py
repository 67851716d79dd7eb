"""How one ring is doing: read from its rooms, told in its status, in the metrics, and on the live page if it is served.

Owns no state but the last convergences; decides nothing. Built by `ringwork` while this sharder acts.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from sharder.membership.lives import State
from sharder.rings.status import (
    Convergence,
    Progress,
    Rebalanced,
    plan_conditions,
    plan_status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sharder.membership.view import View
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.rebalance import Rebalance
    from sharder.page.rooms import RingRoom
    from sharder.rings.reporter import Reporter
    from sharder.unowned.waiting import Waiting
    from sharder.writing.duty import Duty


COUNT_EVERY_S: Final = 5.0
LATE_NAMED: Final = 3
"""Objects past their timeout that the condition names, the longest ones."""


class Survey:
    """The rooms of one ring, seen from outside."""

    def __init__(
        self,
        duty: Duty,
        waiting: Waiting,
        handoffs: Handoffs,
        rebalance: Rebalance,
        *,
        room: RingRoom | None = None,
    ) -> None:
        if room is not None:
            room.enter(duty.objects, waiting, handoffs, rebalance)
        self._duty = duty
        self._waiting = waiting
        self._handoffs = handoffs
        self._rebalance = rebalance
        self._late: set[str] = set()
        self._disturbed_at = duty.clock.now()
        self._strangers = 0
        self._count_at = 0.0
        self._told_version: int | None = None
        self._last: Convergence | None = None
        self._rebalanced: Rebalanced | None = None

    def status(self, reporter: Reporter, *, generation: int) -> Mapping[str, object]:
        """The ring's status now; sets the gauges on the way."""
        view, progress = self._duty.roster.view, self._progress()
        self._measure(view, progress)
        conditions = reporter.dated(plan_conditions(view, progress), generation=generation)
        return plan_status(view, progress, generation=generation, conditions=conditions)

    async def follow(self) -> None:
        """Count what becomes of the members, until cancelled."""
        view = self._duty.roster.view
        self._count_states({}, view)
        while True:
            newer = await self._duty.roster.wait_newer(view.version)
            self._count_states({name: life.state for name, life in view.lives.items()}, newer)
            self._count_members(view, newer)
            if newer.ring_version != view.ring_version:
                self._disturbed_at = self._duty.clock.now()
                self._duty.objects.moves.begin_anew()
            view = newer

    def _progress(self) -> Progress:
        now = self._duty.clock.now()
        overdue = self._handoffs.budget.overdue(at=now)
        late = Counter(handoff.owner for handoff in overdue.values())
        self._note_convergence()
        released = self._released()
        return Progress(
            unassigned=len(self._waiting) if released is None else 0,
            in_flight=self._handoffs.budget.in_flight(),
            late=late,
            refused=len(self._duty.objects.refusals),
            refusals=self._duty.objects.refusals.messages(),
            late_objects=[str(work) for work in islice(overdue, LATE_NAMED)],
            is_converged=self._rebalance.is_converged,
            paused=self._duty.spec.paused,
            denied=self._duty.denials.messages(),
            failing=[*self._duty.unserved, *self._duty.denials.failures()],
            last=self._last,
            rebalanced=self._rebalanced,
            removed=self._removed(),
            still_labelled=self._rebalance.still_labelled,
            released=released,
            deferred=self._duty.roster.deferred,
            former_holder=self._duty.activation.former_holder,
            strangers=self._count_strangers(now),
        )

    def _count_strangers(self, now: float) -> int:
        """Objects that wait because no shard has the name on them; counted every few seconds, a microsecond each."""
        roster, shard = self._duty.roster, self._duty.keys.shard
        if now >= self._count_at:
            view = roster.view
            is_possible = roster.deferred or any(map(view.is_stranger, view.lives))
            owners = (self._waiting.label(name, shard) for name in self._waiting.names() if is_possible)
            self._strangers = sum(1 for owner in owners if owner is not None and view.is_stranger(owner))
            self._count_at = now + COUNT_EVERY_S
        return self._strangers

    def _released(self) -> int | None:
        """Objects given up since this sharder began to; None unless the ring is being deleted."""
        return self._handoffs.given_up + self._duty.objects.stripped if self._duty.releasing else None

    def _removed(self) -> list[str]:
        if self._rebalance.former_free.is_set():
            return []
        return [resource.group_resource for resource in self._duty.kinds.former]

    def _note_convergence(self) -> None:
        rebalance = self._rebalance
        if not rebalance.is_converged or rebalance.converged_version == self._told_version:
            return
        if self._duty.roster.view.ring is None:
            return  # nobody is there who could own anything
        self._told_version = rebalance.converged_version
        took_s = max(0.0, rebalance.converged_at - self._disturbed_at)
        wall = self._duty.clock.wall()
        at = wall.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._last = Convergence(at, took_s, rebalance.last_seen or 0)
        moves = self._duty.objects.moves
        if moves.count:
            moving_s = moves.took_s(answered_at=self._handoffs.answered_at)
            self._rebalanced = Rebalanced(at, moving_s, moves.count)
        self._duty.metrics.convergence_s.labels(ring=self._ring).set(took_s)
        self._duty.metrics.converged_at_s.labels(ring=self._ring).set(wall.timestamp())

    def _measure(self, view: View, progress: Progress) -> None:
        metrics, ring = self._duty.metrics, self._ring
        metrics.unowned.labels(ring=ring).set(progress.unassigned)
        oldest_s = self._waiting.oldest_s(self._duty.clock.now()) if progress.unassigned else 0.0
        metrics.oldest_unowned_s.labels(ring=ring).set(oldest_s)
        metrics.misplaced.labels(ring=ring).set(self._rebalance.misplaced)
        metrics.in_flight.labels(ring=ring).set(sum(progress.in_flight.values()))
        metrics.deferred_names.labels(ring=ring).set(progress.deferred)
        metrics.refused.labels(ring=ring).set(progress.refused)
        metrics.missing_rights.labels(ring=ring).set(len(self._duty.denials))
        metrics.converged.labels(ring=ring).set(progress.is_converged and view.ring is not None)
        metrics.ring_version.labels(ring=ring).set(view.ring_version)
        states = Counter(life.state for life in view.lives.values())
        for state in State:
            metrics.shards.labels(ring=ring, state=state.value).set(states[state])
        self._measure_late(progress.late)

    def _measure_late(self, late: Mapping[str, int]) -> None:
        """Names live once: the series of one that is no longer late would stay for ever."""
        overdue = self._duty.metrics.overdue
        for shard, count in late.items():
            overdue.labels(ring=self._ring, shard=shard).set(count)
        for shard in self._late - late.keys():
            overdue.remove_by_labels({"ring": self._ring, "shard": shard})
        self._late = set(late)

    def _count_states(self, before: Mapping[str, State], view: View) -> None:
        for name, life in view.lives.items():
            if before.get(name) is not life.state:
                self._duty.metrics.state_changes.labels(ring=self._ring, state=life.state.value).inc()

    def _count_members(self, before: View, now: View) -> None:
        changes = self._duty.metrics.ring_changes
        joined = now.ring_members.keys() - before.ring_members.keys()
        left = before.ring_members.keys() - now.ring_members.keys()
        changes.labels(ring=self._ring, change="joined").inc(len(joined))
        changes.labels(ring=self._ring, change="left").inc(len(left))

    @property
    def _ring(self) -> str:
        return self._duty.spec.name
