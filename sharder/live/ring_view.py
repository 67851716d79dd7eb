"""One ring as the sharder publishes it: a view over the ring's components, which do not import it.

A ring that this sharder only observes, as a standby, has members and no handoffs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sharder.live.facts import ROWS, HandoffFacts, MemberFacts, RingFacts
from sharder.live.history import Move
from sharder.membership.shards import ShardState
from sharder.membership.view import WaitReason
from sharder.planning.decisions import Assign, Drain, UpdateDrain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubeio.clock import Clock
    from kubeio.models import Meta, ObjectRef
    from kubeio.resource import ApiResource
    from sharder.live.facts import ReportedObjects, RingCircles
    from sharder.live.history import RingHistory
    from sharder.membership.controller import MembershipController
    from sharder.membership.view import ShardView, View
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.scan import Scan
    from sharder.planning.decisions import ObjectWrite
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.pending import PendingObjects


class ActingComponents(NamedTuple):
    """Components that only the acting sharder has."""

    pending: PendingObjects
    handoffs: Handoffs
    scan: Scan
    reported: Callable[[], ReportedObjects | None]
    """None if a shard does not report its objects."""


class RingView:
    """One ring under one spec. `follow` lasts as long as the work on it."""

    def __init__(
        self,
        spec: RingSpec,
        kinds: RingKinds,
        membership: MembershipController,
        history: RingHistory,
        *,
        circles: RingCircles,
        leader: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._kinds = kinds
        self._membership = membership
        self._history = history
        self._circles = circles
        self._leader = leader
        self._clock = clock
        self._epoch = clock.wall().timestamp() - clock.now()
        """Seconds since 1970 when the monotonic clock stood at 0: instants do not move with the wall clock."""
        self._acting: ActingComponents | None = None
        self._is_worked = True

    def enter(
        self,
        pending: PendingObjects,
        handoffs: Handoffs,
        scan: Scan,
        *,
        reported: Callable[[], ReportedObjects | None],
    ) -> None:
        """Read the components of the acting sharder, too."""
        self._acting = ActingComponents(pending, handoffs, scan, reported)

    async def follow(self) -> None:
        """Record changes of the members, until cancelled."""
        view = self._membership.view
        try:
            while True:
                if view.hold is None or view.hold.reason is not WaitReason.NOT_SYNCED:
                    self._history.saw(members_of(view), at=self._at())
                view = await self._membership.wait_newer(view.version)
        finally:
            self._is_worked = False

    def wrote(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> None:
        """A label was written."""
        match decision:
            case Assign(to=to, was=was):
                kind, source, target = ("takenOver" if was else "assigned"), was, to
            case Drain(owner=owner, to=to) | UpdateDrain(owner=owner, to=to):
                kind, source, target = "asked", owner, to
            case _:
                return
        view = self._membership.view
        name = f"{resource.group_resource} {meta.key}"
        self._history.moved(
            Move(kind, name, member_name(view, source), member_name(view, target)), at=self._at()
        )

    def handed_over(self, ref: ObjectRef, meta: Meta) -> None:
        """An object carries no drain label any more."""
        view, keys = self._membership.view, self._spec.keys
        source = member_name(view, meta.labels.get(keys.shard, ""))
        target = member_name(view, meta.labels.get(keys.drain, ""))
        self._history.moved(Move("handedOver", f"{ref.resource} {ref.key}", source, target), at=self._at())

    def facts(self) -> RingFacts:
        view, acting = self._membership.view, self._acting
        in_flight = acting.handoffs.budget.in_flight() if acting else {}
        reported = acting.reported() if acting else None
        circles = self._circles.of(view.by_main)
        return RingFacts(
            version=view.ring_version,
            acting=acting is not None and self._is_worked,
            converged=acting.scan.is_converged if acting else False,
            note=self._note(view),
            problem="; ".join(map(str, view.problems[:3])),
            objects=reported.total if reported else None,
            unowned=len(acting.pending) if acting else None,
            misplaced=acting.scan.misplaced if acting else None,
            in_flight=sum(in_flight.values()),
            late=len(acting.handoffs.budget.overdue(at=self._clock.now())) if acting else 0,
            members=members_of(view, in_flight, view.shares(), reported.by_shard if reported else None),
            handovers=self._handovers(view, acting.handoffs) if acting else [],
            order=circles[0].order,
            sectors=circles[0].sectors,
            circles=circles if len(circles) > 1 else [],
            resources=[resource.group_resource for resource in self._kinds.labelled],
        )

    def _note(self, view: View) -> str:
        if not self._is_worked:
            return "this ring is not worked at the moment: its status says why"
        if self._acting is None:
            return f"this sharder stands by: {self._leader() or 'another one'} leads, and knows what moves"
        if view.hold is not None:
            return f"objects without an owner wait: {view.hold.reason.value}"
        return "the ring is paused: nothing moves between live replicas" if self._spec.paused else ""

    def _handovers(self, view: View, handoffs: Handoffs) -> list[HandoffFacts]:
        keys, timeout_s, now = self._spec.keys, self._spec.drain_timeout_s, self._clock.now()
        rows = []
        for ref, handoff, meta in handoffs.oldest(ROWS):
            target = meta.labels.get(keys.drain, "") if meta is not None else ""
            rows.append(
                HandoffFacts(
                    object=f"{ref.resource} {ref.key}",
                    source=member_name(view, handoff.owner),
                    target=member_name(view, target),
                    since=round(self._epoch + handoff.since, 1),
                    late=now - handoff.since >= timeout_s,
                )
            )
        return rows

    def _at(self) -> float:
        return round(self._epoch + self._clock.now(), 3)


def member_name(view: View, name: str) -> str:
    """The member of the shard *name*; the name itself if that is not known."""
    shard = view.shards.get(name)
    return shard.member if shard is not None else name


def members_of(
    view: View,
    in_flight: Mapping[str, int] | None = None,
    shares: Mapping[str, float] | None = None,
    owned: Mapping[str, int] | None = None,
) -> dict[str, MemberFacts]:
    """Every member that has a place, or a shard whose objects cannot move yet.

    *shares* cost most of it with many members; a history needs none.
    """
    in_flight, shares = in_flight or {}, shares or {}
    total = sum(place.weight for place in view.places.values())
    shown = _shown(view)
    found = {}
    for member in sorted(view.places.keys() | shown):
        place = view.places.get(member)
        name = (place.shard or "") if place is not None else shown[member].name
        shard = view.shards.get(name)
        found[member] = MemberFacts(
            place="none" if place is None else "filled" if name else "settling",
            shard=name,
            state=shard.shown_state if shard else "vacant",
            weight=float(place.weight) if place is not None else 0.0,
            share=round(float(shares.get(member, 0)), 6),
            ideal=round(place.weight / total, 6) if place is not None and total else 0.0,
            objects=owned.get(name, 0) if owned is not None else None,
            in_flight=in_flight.get(name, 0),
        )
    return found


def _shown(view: View) -> dict[str, ShardView]:
    """One shard of each member that is not dead: a live one if there is any, then by name."""
    shards = [shard for shard in view.shards.values() if shard.state is not ShardState.DEAD]
    return {
        shard.member: shard for shard in sorted(shards, key=lambda shard: (shard.state.is_live, shard.name))
    }
