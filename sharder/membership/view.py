"""Membership at one moment, frozen: the input of planner, assigner, selectors and status."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from kubeio.protocol import is_shard_name
from kubeio.versions import order
from sharder.membership.hash_rings import mean_shares
from sharder.membership.shards import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ring.ring import HashRing
    from sharder.errors import FieldProblem
    from sharder.membership.places import Place
    from sharder.membership.shards import Shard


class OwnerState(StrEnum):
    """State of a name, and its consequence for the objects that carry it.

    LIVE: they leave only by a drain. CONTESTED: they stay where they are (also while a tombstone is wanted).
    DEAD: they may be given away. UNKNOWN: report the name to `Membership.unknown_name_seen`, and wait.
    """

    LIVE = "live"
    CONTESTED = "contested"
    DEAD = "dead"
    UNKNOWN = "unknown"


def owner_state_of(state: ShardState) -> OwnerState:
    """Owner state of a name whose Lease is in *state*."""
    if state.is_live:
        return OwnerState.LIVE
    return OwnerState.DEAD if state is ShardState.DEAD else OwnerState.CONTESTED


class WaitReason(StrEnum):
    """Reason to leave an object as it is, although it is not where it should be."""

    NOT_SYNCED = "leases not read yet"
    MIN_MEMBERS = "fewer members than minMembers"
    START_DELAY = "start delay after an outage"
    NO_MEMBERS = "no member on the ring"
    ACTIVATION = "former controller's lease not held"
    PAUSED = "ring is paused"
    PLACE_SETTLING = "place waits for its member's next shard"
    OWNER_CONTESTED = "owner's lease is contested"
    OWNER_SILENT = "owner does not renew"
    TARGET_SILENT = "desired owner does not renew"
    CONTROLLER_UNOWNED = "controller has no owner yet"
    CONTROLLER_CONTESTED = "controller's owner is contested"
    CHILDREN_FIRST = "controlled objects move first"
    KIND_UNWORKED = "no shard works this kind"
    OWNER_BLIND = "owner does not watch this kind"


class Unplaced(StrEnum):
    """Reason why a shard that is held, and could fill its member's place, does not get it yet, or any more."""

    FILLING = "caches are being filled"
    UNSEEN = "not seen to renew yet"
    FLAPPING = "its member's last shards were short-lived"
    LEAVING = "its replica is scaled away"


class AssignmentHold(NamedTuple):
    """Objects without a live owner wait: why, and until when if that is known."""

    reason: WaitReason
    until: float | None = None


class Desired(NamedTuple):
    """Desired owner of a key: the member on the ring, and the shard that fills its place now, if any."""

    member: str
    shard: str | None


@dataclass(frozen=True, slots=True)
class ShardView:
    """One name, for people and for the planner."""

    name: str
    member: str
    state: ShardState
    hands_over: bool
    since: float
    had_lease: bool = True
    unplaced: Unplaced | None = None
    resources: frozenset[str] | None = None
    """Resources that it watches with its name, as `resource.group`; None: all that the ring has."""
    renewal_before: int = field(default=0, compare=False)
    """resourceVersion of its Lease's last renewal but one; 0 if none was seen. A renewal is no other view."""

    @property
    def shown_state(self) -> str:
        """Its state for people: one that works on and was scaled away is leaving."""
        is_leaving = self.unplaced is Unplaced.LEAVING and self.state is ShardState.READY
        return "leaving" if is_leaving else self.state.value

    @property
    def is_held(self) -> bool:
        return self.state in (ShardState.READY, ShardState.EXPIRED, ShardState.UNCERTAIN)


def view_of_shard(shard: Shard, *, fresh_at: float, unplaced: Unplaced | None) -> ShardView:
    """*shard* as the reads fresh at *fresh_at* show it."""
    facts = shard.facts
    return ShardView(
        name=facts.name,
        member=facts.member,
        state=shard.state(fresh_at),
        hands_over=facts.hands_over,
        since=shard.entered_at,
        had_lease=shard.had_lease,
        unplaced=unplaced,
        resources=facts.resources,
        renewal_before=order(shard.renewal_before),
    )


@dataclass(frozen=True, slots=True)
class View:
    """Membership at one moment.

    `version` grows with every difference; `ring_version` only when some object's desired owner or the fate of an
    owner may have changed: a pass that was clean under one ring version has converged. Names that no shard's Lease
    ever bore (`is_unknown_name`) change no ring version: any client may write them.
    """

    version: int
    ring_version: int
    at: float
    shards: Mapping[str, ShardView]
    foreign: frozenset[str]
    places: Mapping[str, Place]
    ring: HashRing | None
    hold: AssignmentHold | None
    settles_at: float | None
    problems: tuple[FieldProblem, ...]
    mains: tuple[str, ...] = ()
    rings: Mapping[str, HashRing | None] = field(default_factory=dict)
    """The ring of each main resource that not every member works; None: none does. For all others it is `ring`."""
    unknown_are_dead: bool = False
    """The ring is being deleted, and no process works under a name that `shards` lacks (protocol, section 7)."""

    @property
    def unworked(self) -> tuple[str, ...]:
        """Main resources that no member of the ring works."""
        return tuple(main for main in self.mains if main in self.rings and self.rings[main] is None)

    @property
    def by_main(self) -> Mapping[str, HashRing | None]:
        """The ring of each main resource, in their order; None: no member works it."""
        return {main: self.rings.get(main, self.ring) for main in self.mains or ("",)}

    def shares(self) -> Mapping[str, float]:
        """Each member's part of the hash space, as the mean over the main resources."""
        return mean_shares(self.by_main)

    def works(self, name: str, kind: str) -> bool:
        """Whether the shard *name* watches objects of *kind*; not known of one without a Lease."""
        shard = self.shards.get(name)
        return shard is None or shard.resources is None or not kind or kind in shard.resources

    @property
    def ring_members(self) -> Mapping[str, float]:
        """Members on the ring and their weights."""
        return {place.member: place.weight for place in self.places.values()}

    @property
    def not_dead(self) -> frozenset[str]:
        """Names whose objects are not up for taking."""
        return frozenset(name for name, shard in self.shards.items() if shard.state is not ShardState.DEAD)

    @property
    def selector_names(self) -> frozenset[str]:
        """Names that the unowned watch leaves out: not dead, and a shard had a Lease of that name.

        The right to label an object is enough to make a name; these need the right to write Leases.
        """
        return frozenset(name for name in self.not_dead if self.shards[name].had_lease)

    @property
    def dead_names(self) -> frozenset[str]:
        """Names whose objects may be given away without a drain."""
        dead = (name for name, shard in self.shards.items() if shard.state is ShardState.DEAD)
        return self.foreign.union(dead)

    @property
    def may_be_worked(self) -> frozenset[str]:
        """Names under which a process may still be at work: held, or lost otherwise than by its end or silence."""
        ended = (ShardState.DEAD, ShardState.RELEASED)
        return frozenset(name for name, shard in self.shards.items() if shard.state not in ended)

    @property
    def uncertain_members(self) -> frozenset[str]:
        """Members whose place is filled by a shard that is about to be taken."""
        filling = (self.shards.get(place.shard or "") for place in self.places.values())
        return frozenset(shard.member for shard in filling if shard and shard.state is ShardState.UNCERTAIN)

    def shard_at(self, member: str) -> str | None:
        """The shard that fills *member*'s place; None if it has none, or no place."""
        place = self.places.get(member)
        return place.shard if place else None

    def desired(self, key: str, main: str = "") -> Desired | None:
        """Desired owner of *key*, of a tree whose root is a *main*; None if no member on the ring works that kind.

        Nor has a resource an owner that joined the ring after this view: its rings are not known yet.
        """
        is_known = not main or not self.mains or main in self.mains
        ring = self.rings.get(main, self.ring) if is_known else None
        if ring is None:
            return None
        member = ring.owner(key)
        return Desired(member, self.shard_at(member))

    def owner_state(self, name: str) -> OwnerState:
        """State of the owner *name*, read from a shard label. A value that cannot be a Lease's name is dead."""
        shard = self.shards.get(name)
        if shard is None:
            is_dead = self.unknown_are_dead or self._never_works(name)
            return OwnerState.DEAD if is_dead else OwnerState.UNKNOWN
        return owner_state_of(shard.state)

    def _never_works(self, name: str) -> bool:
        """Whether no shard of this ring can have *name*."""
        return name in self.foreign or not is_shard_name(name)

    def is_dead_without_lease(self, name: str) -> bool:
        """Whether *name* is dead only because no Lease of it is known (`unknown_are_dead`)."""
        return self.unknown_are_dead and name not in self.shards and not self._never_works(name)

    def is_unknown_name(self, name: str) -> bool:
        """Whether objects labelled *name* wait though no shard's Lease ever bore it: theirs alone to wait."""
        if self.hold is not None and self.hold.reason is WaitReason.NOT_SYNCED:
            return False
        shard = self.shards.get(name)
        if shard is None:
            return self.owner_state(name) is OwnerState.UNKNOWN
        return not shard.had_lease and owner_state_of(shard.state) is OwnerState.CONTESTED

    def holds(self, name: str) -> bool:
        """Whether *name*'s Lease is held, as last seen. Evidence for a write of that name has to show the same."""
        shard = self.shards.get(name)
        return shard is not None and shard.is_held

    def may_receive(self, name: str) -> bool:
        """Whether a new drain may point to *name*: not while it does not renew."""
        shard = self.shards.get(name)
        return shard is not None and shard.state is ShardState.READY


class ViewVersions:
    """Numbers the views of one ring: `View.version` and `View.ring_version`."""

    def __init__(self) -> None:
        self._last: View | None = None
        self._version = 0
        self._ring_content: _RingContent | None = None
        self._ring_version = 0

    def numbered(self, view: View) -> View:
        """*view* with its versions; the last ones unless it differs from the last view in more than its instant."""
        content = _ring_content(view)
        if self._ring_content is None or not content.follows(self._ring_content):
            self._ring_version += 1
        self._ring_content = content
        timeless = replace(view, version=0, ring_version=self._ring_version, at=0.0)
        if timeless != self._last:
            self._version += 1
            self._last = timeless
        return replace(view, version=self._version, ring_version=self._ring_version)


@dataclass(frozen=True, slots=True)
class _RingContent:
    """What decides an object's desired owner and the fate of its owner; names that no shard had change nothing."""

    fates: Mapping[str, OwnerState]
    """Of every name that a shard had and that is not live."""
    foreign: frozenset[str]
    filled: Mapping[str, Place]
    rings: tuple[HashRing | None, Mapping[str, HashRing | None], tuple[str, ...]]
    unknown_are_dead: bool

    def follows(self, last: _RingContent) -> bool:
        """Whether no object's fate differs from what it was under *last*: a dead name that is forgotten has none."""
        forgotten = last.fates.keys() - self.fates.keys()
        if any(last.fates[name] is not OwnerState.DEAD for name in forgotten):
            return False
        return self == replace(last, fates={n: fate for n, fate in last.fates.items() if n not in forgotten})


def _ring_content(view: View) -> _RingContent:
    fates = {
        name: owner_state
        for name, shard in view.shards.items()
        if shard.had_lease and (owner_state := owner_state_of(shard.state)) is not OwnerState.LIVE
    }
    # a shard that joins the rings has no object to move yet
    filled = {member: place for member, place in view.places.items() if member in (view.ring or ())}
    return _RingContent(
        fates, view.foreign, filled, (view.ring, view.rings, view.mains), view.unknown_are_dead
    )
