"""Causes: why nobody leads, why a ring or an object has to wait, and what to do about it. Pure.

`describe`, `check`, `status` and the dashboard read one judgement from here: same cluster, same cause, same words.
`cause_of` asks one question after the other, in the order in which the answers explain an object: does its ring want
it, has it an owner, does that owner live, is it where it belongs. The first answer that is not "yes" is the cause;
what lies behind it would only follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.models import ObjectKey
from kubeio.protocol import is_shard_name
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.shards import ring_weights
from ringleader.cluster.snapshot import ELECTION_LEASE
from ringleader.cluster.thresholds import NEW_S

if TYPE_CHECKING:
    from kubeio.models import Lease
    from kubeio.protocol import RingKeys
    from ringleader.cluster.managed_fields import DatedMeta
    from ringleader.cluster.objects import Row
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import Leadership, RingState, Snapshot

START: Final = (
    "start replicas of the controller that works it, or take the resource out of the ring's spec.resources"
)
ROLL: Final = "roll the replicas: they learn at their start what the ring controls"
START_SHARDER: Final = "start sharders, or look at their logs; a standby takes over by itself"


class Cause(msgspec.Struct, frozen=True, rename="camel"):
    """*text*: a clause. That of an object continues the object's name."""

    reason: str
    """One word for programs, as in conditions."""
    text: str
    is_wrong: bool = True
    """Whether a person is needed, or may be."""
    since_seconds: float | None = None
    remedy: str = ""
    evidence: list[str] = []


# ---- sharders -------------------------------------------------------------------------------------------------


def why_nobody_leads(leadership: Leadership) -> Cause | None:
    """None if a sharder leads, or if that is not known."""
    if leadership.leads is not False:
        return None
    newest = leadership.newest
    if newest is None:
        text = f"no sharder leads: there is no Lease {ELECTION_LEASE} in any namespace"
        return Cause("NoSharder", text, remedy="start sharders (docs/operate.md)")
    text = (
        f"no sharder leads: {newest.holder} does not renew Lease {newest.where}"
        if newest.holder
        else f"no sharder leads: Lease {newest.where} is free"
    )
    return Cause("NoSharder", text, since_seconds=newest.age_s, remedy=START_SHARDER)


def leader_text(leadership: Leadership) -> str:
    """The leader of the sharders, in one clause."""
    match leadership.leads:
        case True:
            return f"the sharder {leadership.leader} leads"
        case False:
            return "no sharder leads"
        case _:
            return "whether a sharder leads is not known (no right to list Leases everywhere)"


# ---- rings ----------------------------------------------------------------------------------------------------


def why_ring_waits(snapshot: Snapshot, state: RingState, main: str = "") -> Cause | None:
    """Why no object of *state*'s ring gets an owner now; with *main*, no object of that main resource."""
    ring, name = state.ring, state.name
    if (nobody := why_nobody_leads(snapshot.leadership)) is not None:
        return nobody
    if ring.refusal:
        text = f"the sharder refuses ring {name}: {ring.refusal}"
        return Cause("RingRefused", text, remedy="correct that field of the ring")
    if state.former_holder and (former := ring.spec.activation) is not None:
        return Cause(
            "FormerController",
            f"ring {name} waits until {state.former_holder} gives the former controller's Lease"
            f" {former.namespace}/{former.name} back",
            remedy="scale the former controller to zero: it works beside the replicas",
        )
    ready = ring.condition("Ready")
    since = seconds_since(ready.since, snapshot.now)
    if ready.reason in ("Forbidden", "InvalidSpec", "ResourceFails", "FormerController"):
        return _not_ready(snapshot, state)
    if no_replica := _no_replica(state):
        return msgspec.structs.replace(no_replica, since_seconds=since if ready.status == "False" else None)
    if main and not any(shard.works(main) for shard in state.active.values()):
        since = since if ready.reason == "KindUnworked" else None
        return Cause("KindUnworked", unworked(name, main), since_seconds=since, remedy=START)
    if not ring_weights(ring, state.shards, main):
        return Cause(
            "AllCordoned", f"every member of ring {name} is cordoned", remedy="ringleader uncordon MEMBER"
        )
    live = len({shard.member for shard in state.working})
    if live < ring.spec.min_members:
        return Cause(
            "MinMembers",
            f"ring {name} waits for {ring.spec.min_members} members (spec.minMembers), {live} live",
            since_seconds=since,
            remedy="start more replicas, or lower spec.minMembers",
        )
    # a kind that nobody works is another one than *main*
    return _not_ready(snapshot, state) if ready.reason not in ("KindUnworked", "Releasing") else None


def _not_ready(snapshot: Snapshot, state: RingState) -> Cause | None:
    ready = state.ring.condition("Ready")
    if ready.status != "False":
        return None
    return Cause(
        "RingNotReady",
        f"ring {state.name} is not ready: {ready.message or ready.reason}",
        since_seconds=seconds_since(ready.since, snapshot.now),
        remedy=(
            "scale the former controller to zero: it works beside the replicas"
            if ready.reason == "FormerController"
            else f"correct what the message names: kubectl edit controllerring {state.name}"
        ),
    )


def _no_replica(state: RingState) -> Cause | None:
    where = state.ring.spec.lease_namespace
    if not state.held:
        text = f"no replica of ring {state.name} lives (no held Lease in namespace {where})"
        return Cause("NoReplica", text, remedy="start replicas, or look at their logs: why do they not join?")
    if not state.working:
        names = some([shard.name for shard in state.held])
        text = f"no replica of ring {state.name} renews its Lease in namespace {where}: {names}"
        return Cause("NoReplica", text, remedy="look at their pods and logs, and start others")
    if not state.active:
        text = f"no replica of ring {state.name} has filled its caches yet"
        return Cause("NoReplica", text, remedy="wait for the first one, or look at its log")
    return None


def ring_causes(snapshot: Snapshot, state: RingState) -> list[Cause]:
    """Everything for which objects of the ring wait: for an owner, or for one that renews its Lease."""
    if state.ring.is_deleted:
        return []
    whole = why_ring_waits(snapshot, state)
    by_main = [] if whole else [why_ring_waits(snapshot, state, main) for main in state.ring.mains]
    waits = [cause for cause in (whole, *by_main) if cause is not None]
    silent = [silence(each, snapshot.leadership) for each in silent_shards(state)]
    return [*waits, *(msgspec.structs.replace(each, text=f"shard {each.text}") for each in silent)]


def ring_notes(snapshot: Snapshot, state: RingState) -> str:
    """The causes of `ring_causes` in one line; without the silent shards, which a list of shards shows."""
    return "; ".join(cause.text for cause in ring_causes(snapshot, state) if cause.reason != "Silent")


def silent_shards(state: RingState) -> list[Shard]:
    """Shards that hold their Leases and do not renew them, by name."""
    return [shard for shard in state.held if shard.is_silent]


def unworked(ring: str, main: str) -> str:
    """Why objects of *main*, and what follows them, get no owner."""
    return f"no member of ring {ring} works {main}"


# ---- one object -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller of a controlled object, and the shard in its label."""

    name: str
    key: ObjectKey
    owner: str = ""
    exists: bool = True


@dataclass(frozen=True, slots=True)
class ObjectState:
    """One object of a ring, with the snapshot in which it is judged."""

    snapshot: Snapshot
    state: RingState
    row: Row
    meta: DatedMeta
    controller: Controller | None = None
    stranger: Lease | None = None
    """The Lease of its owner's name, if it is not of this ring."""
    other_owners: Mapping[str, str] = field(default_factory=dict)
    """By further ring: the owner there."""
    is_lasting: bool = False
    """Whether two looks found it in the same state: it is not just new."""

    @property
    def ring(self) -> Ring:
        return self.state.ring

    @property
    def keys(self) -> RingKeys:
        return self.state.ring.keys

    @property
    def owner(self) -> Shard | None:
        return self.state.by_name.get(self.row.owner)

    @property
    def desired(self) -> Shard | None:
        return self.state.by_name.get(self.row.desired_shard)

    def since(self, instant: str | None) -> float | None:
        """Seconds since *instant*; None if it is not known."""
        return seconds_since(instant, self.snapshot.now)

    def written_s(self, label: str) -> float | None:
        """Seconds since *label* was written; None if the server does not say."""
        entry = self.meta.label_written(label)
        return self.since(entry.time) if entry is not None else None


def cause_of(obj: ObjectState) -> Cause | None:
    """The cause that keeps the object from its place; None if it is there, and its owner lives."""
    for question in (_unwanted, _unowned, _dead_owner, _silent_owner, _not_watched, _on_its_way, _elsewhere):
        found = question(obj)
        if found is not None:
            return found
    return None


# -- does its ring want it


def _unwanted(obj: ObjectState) -> Cause | None:
    """Rings that go, or that do not select the object; an order to release it."""
    ring, row = obj.ring, obj.row
    what = f"is being given up by {row.owner}" if row.owner else "is not worked on by anybody"
    if ring.is_deleted:
        return Cause(
            "RingDeleted",
            f"{what}: ring {ring.name} is being deleted",
            since_seconds=obj.since(ring.metadata.deletion_timestamp),
            remedy=f"wait until `kubectl get controllerring {ring.name}` finds nothing;"
            f" {leader_text(obj.snapshot.leadership)}",
        )
    if not obj.snapshot.selects(ring, row.namespace):
        return Cause(
            "NamespaceNotSelected",
            f"{what}: the namespaceSelector of ring {ring.name} does not select namespace {row.namespace}",
            remedy=f"label the namespace, or change spec.namespaceSelector of ring {ring.name}",
        )
    if row.drain_to == "":
        return Cause(
            "Released",
            f"is being released: {row.owner or 'its owner'} is asked to give it up",
            is_wrong=is_late(obj),
            since_seconds=obj.written_s(obj.keys.drain),
            remedy=f"if nobody wants that, remove the label {obj.keys.drain}",
        )
    return None


# -- has it an owner


def _unowned(obj: ObjectState) -> Cause | None:
    if obj.row.owner:
        return None
    age_s = obj.since(obj.meta.creation_timestamp)
    found = _why_unassigned(obj)
    if found is not None:
        return _because("has no owner", found)
    if age_s is not None and age_s < NEW_S and not obj.is_lasting:
        text = "is new: the sharder gives it an owner in a moment"
        return Cause("New", text, is_wrong=False, since_seconds=age_s)
    desired = obj.row.desired_shard or "a shard"
    return Cause(
        "NotAssigned",
        f"has no owner although {desired} could have it: the sharder has not written the label",
        since_seconds=age_s,
        remedy=f"look at the sharder's log for the object, and at ringleader_unowned_objects in its /metrics;"
        f" {leader_text(obj.snapshot.leadership)}",
    )


def _because(what: str, cause: Cause, **changes: object) -> Cause:
    """*cause* as the reason of *what*."""
    return msgspec.structs.replace(cause, text=f"{what}: {cause.text}", **changes)


def _why_unassigned(obj: ObjectState) -> Cause | None:
    """Why no sharder gives the object to anybody now; None if one should."""
    return why_ring_waits(obj.snapshot, obj.state, obj.row.main) or _not_taken(obj)


def _not_taken(obj: ObjectState) -> Cause | None:
    """Why the shard that is to have the object does not get it: it is silent, or does not watch its kind.

    A controlled object goes to its controller's owner while that one lives.
    """
    desired = obj.desired
    if desired is not None and desired.is_silent:
        return _because("the shard at its place is silent", silence(desired, obj.snapshot.leadership))
    with_controller = obj.state.by_name.get(obj.controller.owner) if obj.controller is not None else None
    next_owner = with_controller or desired
    if next_owner is None or not next_owner.ignores(obj.row.resource):
        return None
    text = f"{next_owner.name}, which is to have it, does not watch {obj.row.resource}"
    return Cause("KindUnwatched", text, remedy=ROLL)


# -- does its owner live


def _dead_owner(obj: ObjectState) -> Cause | None:
    name, owner = obj.row.owner, obj.owner
    if owner is None:
        return _no_such_owner(obj, name)
    taken_s = obj.since(owner.lease.spec.acquire_time)
    is_led = obj.snapshot.leadership.leads is not False
    wait_s = obj.ring.spec.max_lease_duration_s
    if owner.is_placeholder:
        if not (owner.is_contested and is_led):
            return _orphan(obj, "OwnerUnknown", _no_lease(obj, name), taken_s)
        return Cause(
            "OwnerUnknown",
            f"waits {wait_s:g} s before it is given away: {_no_lease(obj, name)}",
            since_seconds=taken_s,
            remedy="wait for maxLeaseDurationSeconds; do not delete Leases, and keep the label"
            f" {obj.keys.shard} out of git and manifests",
            evidence=[
                f"the sharder made a Lease in the place of {name}, until a process of that name must have ended"
            ],
        )
    if owner.state == "contested" or (owner.is_contested and not owner.is_held):
        if is_led:
            return Cause(
                "Contested",
                f"waits {wait_s:g} s before it is given away: the Lease of its owner {name} was taken, and it may"
                " still work",
                since_seconds=taken_s,
                remedy="nothing; if this is often: who deletes Leases, or is drainPolicy Force needed?",
            )
        text = f"the Lease of its owner {name} was taken"
        return _orphan(obj, "Contested", text, obj.since(owner.lease.spec.renew_time))
    if owner.is_live:
        return None
    since = obj.since(owner.lease.spec.renew_time)
    return _orphan(obj, "OwnerDead", f"its owner {name} is dead", since)


def _no_lease(obj: ObjectState, name: str) -> str:
    where = obj.ring.spec.lease_namespace
    return (
        f"its label names {name}, but Lease {where}/{name} does not exist: it was deleted, or the label was written"
        " by hand"
    )


def _no_such_owner(obj: ObjectState, name: str) -> Cause:
    since = obj.written_s(obj.keys.shard)
    if not is_shard_name(name):
        text = f"its label names {name!r}, which no shard can be called"
    elif obj.stranger is not None:
        of = obj.stranger.metadata.labels.get(obj.keys.ring_label)
        text = f"its label names {name}, a Lease {f'of ring {of}' if of else 'of no ring'}"
    else:
        text = _no_lease(obj, name)
    found = _orphan(obj, "OwnerUnknown", text, since)
    more = f"keep the label {obj.keys.shard} out of git and manifests"
    return msgspec.structs.replace(found, remedy=f"{found.remedy}; {more}")


def _orphan(obj: ObjectState, reason: str, text: str, since_s: float | None) -> Cause:
    """*text* took the owner away: the object waits for a sharder, or for what the sharder waits for."""
    behind = _why_unassigned(obj)
    if behind is not None:
        text = f"is worked on by nobody: {text}, and {behind.text}"
        return Cause(reason, text, since_seconds=since_s, remedy=behind.remedy, evidence=behind.evidence)
    to = obj.row.desired_shard or "another shard"
    return Cause(
        reason,
        f"is worked on by nobody: {text}; the sharder gives it to {to}",
        since_seconds=since_s,
        remedy=f"if this lasts longer than a minute: the sharder's log; {leader_text(obj.snapshot.leadership)}",
    )


def _silent_owner(obj: ObjectState) -> Cause | None:
    """The owner's Lease is held, but not renewed; or its shard has left and its place is kept."""
    owner = obj.owner
    if owner is None:
        return None
    if owner.state == "released":
        hold_s = obj.ring.spec.hold_s
        return Cause(
            "Held",
            f"waits for the next shard of {owner.member}: its owner {owner.name} has left",
            is_wrong=obj.snapshot.leadership.leads is False or (owner.age_s or 0) > hold_s + NEW_S,
            since_seconds=owner.age_s,
            remedy=f"its place is kept for holdSeconds ({hold_s:g} s); {leader_text(obj.snapshot.leadership)}",
        )
    if owner.is_silent:
        found = silence(owner, obj.snapshot.leadership)
        return msgspec.structs.replace(found, text=f"is not worked on: its owner {found.text}")
    return None


def silence(shard: Shard, leadership: Leadership) -> Cause:
    """That *shard* does not renew its Lease, and what becomes of its objects."""
    text, remedy = "", "the sharder gives its objects away after two Lease durations"
    if (nobody := why_nobody_leads(leadership)) is not None:
        text = f", and {nobody.text}"
        remedy = f"nobody gives its objects away until a sharder leads: {nobody.remedy}"
    return Cause(
        "Silent",
        f"{shard.name} does not renew its Lease: frozen, cut off, or dead{text}",
        since_seconds=shard.age_s,
        remedy=f"look at pod {shard.pod.name} and its log; {remedy}",
        evidence=[f"its Lease lasts {shard.duration_s:g} s"],
    )


def _not_watched(obj: ObjectState) -> Cause | None:
    """Its owner lives and works, but on other kinds: nothing is asked of it."""
    owner, kind = obj.owner, obj.row.resource
    if owner is None or not owner.ignores(kind):
        return None
    is_new_kind = obj.controller is not None and owner.works(
        obj.row.main
    )  # controlled since after that start
    give_up = (
        f"delete pod {owner.member}, or wait for its end: the sharder then gives the object to a shard that works it;"
        f" keep the label {obj.keys.shard} out of git and manifests"
    )
    return Cause(
        "KindUnwatched",
        f"is not worked on: {owner.name} does not watch {kind}: the object waits for the end of that shard",
        since_seconds=obj.written_s(obj.keys.shard),
        remedy=ROLL if is_new_kind else give_up,
        evidence=[f"{owner.name} works {', '.join(sorted(owner.resources or ()))}"],
    )


# -- is it where it belongs


def _on_its_way(obj: ObjectState) -> Cause | None:
    row = obj.row
    if row.drain_to is None:
        return None
    since, target = obj.written_s(obj.keys.drain), obj.state.by_name.get(row.drain_to)
    if target is None or not target.is_live:
        nobody = why_nobody_leads(obj.snapshot.leadership)
        behind = f", and {nobody.text}" if nobody is not None else ""
        return Cause(
            "HandoffToDead",
            f"waits at {row.owner}: it was to go to {row.drain_to}, which is dead{behind}",
            is_wrong=bool(behind) or is_late(obj),
            since_seconds=since,
            remedy="the sharder points it elsewhere, or the owner gives it up plainly;"
            f" {leader_text(obj.snapshot.leadership)}",
        )
    if is_late(obj):
        limit = obj.ring.spec.drain_timeout_s
        stuck = obj.ring.condition("DrainStuck")
        return Cause(
            "HandoffLate",
            f"is stuck: its owner {row.owner} does not hand it over to {row.drain_to} (drainTimeoutSeconds {limit:g})",
            since_seconds=since,
            remedy=f"look at {row.owner}'s longest reconcile (/debug/queue) and log; delete pod {row.owner_member},"
            " or set spec.drainPolicy: Force",
            evidence=[f"condition DrainStuck: {stuck.message}"] if stuck.status == "True" else [],
        )
    text = f"is on its way from {row.owner} to {row.drain_to}"
    return Cause("Handoff", text, is_wrong=False, since_seconds=since)


def is_late(obj: ObjectState) -> bool:
    """Whether the owner owes an answer longer than the ring allows: by the date, or as the sharder says."""
    return is_overdue(obj.ring, obj.row.owner, obj.written_s(obj.keys.drain))


def is_overdue(ring: Ring, owner: str, since_s: float | None) -> bool:
    """Whether a handoff of *owner* that began *since_s* seconds ago is past its timeout; None: the sharder's word."""
    if since_s is not None:
        return since_s > ring.spec.drain_timeout_s
    stuck = ring.condition("DrainStuck")
    return stuck.status == "True" and f"{owner} (" in stuck.message


def _elsewhere(obj: ObjectState) -> Cause | None:
    """Its owner lives, but another member should have it."""
    row, spec, ring = obj.row, obj.ring.spec, obj.ring
    if obj.controller is not None:
        return _left_behind(obj, obj.controller)
    if not row.desired_shard or row.desired_shard == row.owner:
        return None
    stays = f"stays at {row.owner} although it belongs to {row.desired_shard}"
    if spec.paused and not ring.refusal:
        text = f"{stays}: ring {ring.name} is paused"
        return Cause("Paused", text, is_wrong=False, remedy=f"ringleader resume {ring.name}")
    if ring.refusal or obj.snapshot.leadership.leads is False or obj.state.former_holder:
        behind = _why_unassigned(obj)
        if behind is not None:
            return _because(stays, behind)
    if obj.desired is not None and obj.desired.is_silent:
        return _because(stays, silence(obj.desired, obj.snapshot.leadership))
    return Cause(
        "WaitsTurn",
        f"{stays}: it waits its turn (maxInFlight {spec.max_in_flight}, per owner {spec.max_in_flight_per_owner})",
        is_wrong=False,
        remedy=f"ringleader status {ring.name} says how many are in flight",
    )


def _left_behind(obj: ObjectState, controller: Controller) -> Cause | None:
    owner = obj.row.owner
    if not controller.exists:
        text = f"is left over: its controller {controller.name} is gone"
        return Cause("ControllerGone", text, remedy="the garbage collector deletes it")
    if controller.owner and controller.owner != owner:
        return Cause(
            "LeftBehind",
            f"is at {owner}, its controller {controller.name} at {controller.owner}",
            remedy="its owner or the audit sends it after its controller; until then nobody works on it",
        )
    return None


def unobserved(owner: str) -> Cause:
    """That *owner* has not observed a change of the object."""
    return Cause(
        "Unobserved",
        f"has a change that its owner {owner} has not observed",
        remedy=f"ask {owner} itself (--endpoint), and look at its log and its longest reconcile (/debug/queue)",
    )


def two_owners(obj: ObjectState) -> Cause | None:
    """It has one owner in each of several rings."""
    if not obj.other_owners:
        return None
    others = ", ".join(f"{owner} in ring {ring}" for ring, owner in sorted(obj.other_owners.items()))
    return Cause(
        "TwoOwners",
        f"has two owners: {obj.row.owner} in ring {obj.ring.name}, {others}",
        remedy="right only if two different controllers work on it; else delete one of the rings",
    )


def some(names: list[str], *, shown: int = 3) -> str:
    """The first few of *names*, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
