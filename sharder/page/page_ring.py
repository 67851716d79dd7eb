"""One ring of the sharder as the page shows it: a view over the ring's parts, which do not import the page.

A ring that this sharder only observes has members and no handoffs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import NotFound
from kubeio.models import HasMeta
from ring.hashing import HASH_SPACE
from sharder.membership.shards import ShardState
from sharder.membership.view import WaitReason
from sharder.page.facts import (
    ROWS,
    FoundObject,
    HandoffFacts,
    MemberFacts,
    NotFoundHere,
    RingCircles,
    RingFacts,
)
from sharder.page.history import Move, RingHistory
from sharder.page.story import owner_story, ring_story, unwatched
from sharder.planning.controllers import read_controller
from sharder.planning.decisions import Assign, Drain, UpdateDrain
from sharder.planning.keys import Controlled, Outsider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.clock import Clock
    from kubeio.models import Meta, ObjectRef
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from ring.ring import HashRing
    from sharder.membership.controller import MembershipController
    from sharder.membership.view import ShardView, View
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.scan import Scan
    from sharder.planning.decisions import ObjectWrite
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.pending import PendingObjects

FIND_TIMEOUT_S: Final = 10.0


class ActingComponents(NamedTuple):
    """Components that only the acting sharder has."""

    pending: PendingObjects
    handoffs: Handoffs
    scan: Scan


class PageRing:
    """One ring under one spec. `follow` lasts as long as the work on it."""

    def __init__(
        self,
        spec: RingSpec,
        kinds: RingKinds,
        membership: MembershipController,
        client: Client,
        history: RingHistory,
        *,
        circles: RingCircles,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._kinds = kinds
        self._membership = membership
        self._client = client
        self._history = history
        self._circles = circles
        self._clock = clock
        self._epoch = clock.wall().timestamp() - clock.now()
        """Seconds since 1970 when the monotonic clock stood at 0: instants do not move with the wall clock."""
        self._acting: ActingComponents | None = None
        self._is_worked = True
        self._assigned = (0.0, 0)
        """End of the last whole pass, and the number of new objects that got an owner since."""

    def enter(self, pending: PendingObjects, handoffs: Handoffs, scan: Scan) -> None:
        """Show the components of the acting sharder."""
        self._acting = ActingComponents(pending, handoffs, scan)

    async def follow(self) -> None:
        """Record changes of the members, until cancelled."""
        view = self._membership.view
        try:
            while True:
                if view.hold is None or view.hold.reason is not WaitReason.NOT_SYNCED:
                    self._history.saw(members_of(view, {}), at=self._at())
                view = await self._membership.wait_newer(view.version)
        finally:
            self._is_worked = False

    def wrote(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> None:
        """A label was written."""
        match decision:
            case Assign(to=to, was=was):
                if not was:
                    counted_at, number = self._since_pass()
                    self._assigned = counted_at, number + 1
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

    def by_main(self) -> Mapping[str, HashRing | None]:
        return self._membership.view.by_main

    def facts(self) -> RingFacts:
        view, acting = self._membership.view, self._acting
        in_flight = acting.handoffs.budget.in_flight() if acting else {}
        circles = self._circles.of(view.by_main)
        return RingFacts(
            version=view.ring_version,
            acting=acting is not None and self._is_worked,
            converged=acting.scan.is_converged if acting else False,
            note=self._note(view),
            problem="; ".join(map(str, view.problems[:3])),
            objects=self._objects(),
            counted_at=self._counted_at(),
            unowned=len(acting.pending) if acting else None,
            misplaced=acting.scan.misplaced if acting else None,
            in_flight=sum(in_flight.values()),
            late=len(acting.handoffs.budget.overdue(at=self._clock.now())) if acting else 0,
            members=members_of(view, in_flight),
            handovers=self._handovers(view, acting.handoffs) if acting else [],
            order=circles[0].order,
            sectors=circles[0].sectors,
            circles=circles if len(circles) > 1 else [],
            resources=[resource.group_resource for resource in self._kinds.labelled],
        )

    async def find(self, resource: str, namespace: str, name: str) -> FoundObject:
        """Find an object's owner and desired owner: one GET, one more for each controller above it."""
        kind = next((each for each in self._kinds.labelled if each.group_resource == resource), None)
        if kind is None:
            raise NotFoundHere(f"ring {self._spec.name} does not distribute {resource}")
        if kind.namespaced and not namespace:
            raise NotFoundHere(f"{resource} is namespaced: write NAMESPACE/NAME")
        meta = await self._read(kind, namespace, name)
        key, main = await self._key(kind, meta)
        view = self._membership.view
        ring = view.by_main.get(main, view.ring)
        labels, keys = meta.labels, self._spec.keys
        owner, drain = labels.get(keys.shard, ""), labels.get(keys.drain)
        explanation = ring.explain(key) if ring is not None and len(ring) else None
        member = explanation.owner if explanation else ""
        desired = view.shard_at(member) or "" if member else ""
        shard = view.shards.get(owner)
        is_live = shard is not None and shard.state.is_live
        is_ignored = shard is not None and shard.is_held and not view.works(owner, resource)
        return FoundObject(
            object=f"{resource} {meta.key}",
            owner=owner,
            owner_member=shard.member if shard else "",
            owner_state=shard.state.value if shard else ("no Lease" if owner else "unowned"),
            desired_member=member,
            desired_shard=desired,
            drain_to=drain,
            key=key,
            hash=f"{explanation.hash:016x}" if explanation else "",
            position=explanation.hash / HASH_SPACE if explanation else None,
            is_placed=bool(owner) and owner == desired and drain is None and not is_ignored,
            story=[
                *ring_story(explanation, unworked=main if main in view.unworked else ""),
                *(
                    [unwatched(owner, resource)]
                    if is_ignored
                    else owner_story(owner, desired, drain, is_live=is_live)
                ),
            ],
            main=main,
        )

    async def _read(self, kind: ApiResource, namespace: str, name: str) -> Meta:
        try:
            found = await self._client.get(
                kind, name, namespace=namespace, type=HasMeta, metadata_only=True, timeout_s=FIND_TIMEOUT_S
            )
        except NotFound:
            where = f"in namespace {namespace}" if namespace else "in the cluster"
            raise NotFoundHere(f"no {kind.group_resource} {name} {where}") from None
        return found.metadata

    async def _key(self, kind: ApiResource, meta: Meta) -> tuple[str, str]:
        """The object's key, and the main resource that it is or follows."""
        role = self._kinds.role(kind, meta)
        if isinstance(role, Controlled) and role.key is None:
            seen = await read_controller(
                self._client, role.controller, kinds=self._kinds, keys=self._spec.keys
            )
            if not seen.is_outsider:
                return seen.key or role.controller.key, seen.main or role.main
        elif not isinstance(role, Outsider) and role.key is not None:
            return role.key, role.main
        raise NotFoundHere(f"{meta.key} has no controller on ring {self._spec.name}: it is not distributed")

    def _objects(self) -> int | None:
        """Number of objects in the last whole pass, plus those that got an owner since; None without such a pass."""
        seen = self._acting.scan.last_seen if self._acting else None
        return None if seen is None else seen + self._since_pass()[1]

    def _counted_at(self) -> float | None:
        ended_at = self._acting.scan.converged_at if self._acting else 0.0
        return round(self._epoch + ended_at, 1) if ended_at else None

    def _since_pass(self) -> tuple[float, int]:
        ended_at = self._acting.scan.converged_at if self._acting else 0.0
        return self._assigned if self._assigned[0] == ended_at else (ended_at, 0)

    def _note(self, view: View) -> str:
        if not self._is_worked:
            return "this ring is not worked at the moment: its status says why"
        if self._acting is None:
            return "this sharder stands by: another one acts, and shows what moves"
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


def members_of(view: View, in_flight: Mapping[str, int]) -> dict[str, MemberFacts]:
    """Every member that has a place, or a shard whose objects cannot move yet."""
    shares = view.shares()
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
            state=shard.state.value if shard else "vacant",
            weight=float(place.weight) if place is not None else 0.0,
            share=round(float(shares.get(member, 0)), 6),
            ideal=round(place.weight / total, 6) if place is not None and total else 0.0,
            in_flight=in_flight.get(name, 0),
        )
    return found


def _shown(view: View) -> dict[str, ShardView]:
    """One shard of each member that is not dead: a live one if there is any, then by name."""
    shards = [shard for shard in view.shards.values() if shard.state is not ShardState.DEAD]
    return {
        shard.member: shard for shard in sorted(shards, key=lambda shard: (shard.state.is_live, shard.name))
    }
