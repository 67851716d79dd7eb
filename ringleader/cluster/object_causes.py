"""Causes of one object: why it has no owner, why its owner does not work, why it is not where it belongs. Pure.

`cause_of` asks one question after the other, in the order in which the answers explain an object: does its ring want
it, has it an owner, does that owner live, is it where it belongs. The first answer that is not "yes" is the cause;
what lies behind it would only follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.protocol import is_shard_name
from ringleader.cluster.causes import Cause, leader_text, silence, why_no_leader, why_ring_waits
from ringleader.cluster.thresholds import NEW_S

if TYPE_CHECKING:
    from ringleader.cluster.object_state import Controller, ObjectState
    from ringleader.cluster.ring import Ring

ROLL: Final = "roll the replicas: they learn at their start what the ring controls"


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
    what = f"is being given up by {row.owner}" if row.owner else "is not reconciled"
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
            remedy=f"if that is not wanted, remove the label {obj.keys.drain}",
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
    """Why no sharder gives the object an owner now; None if one should."""
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
    elif obj.foreign_lease is not None:
        of = obj.foreign_lease.metadata.labels.get(obj.keys.ring_label)
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
        text = f"is not reconciled: {text}, and {behind.text}"
        return Cause(reason, text, since_seconds=since_s, remedy=behind.remedy, evidence=behind.evidence)
    to = obj.row.desired_shard or "another shard"
    return Cause(
        reason,
        f"is not reconciled: {text}; the sharder gives it to {to}",
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
        return msgspec.structs.replace(found, text=f"is not reconciled: its owner {found.text}")
    return None


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
        f"is not reconciled: {owner.name} does not watch {kind}: the object waits for the end of that shard",
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
        no_leader = why_no_leader(obj.snapshot.leadership)
        behind = f", and {no_leader.text}" if no_leader is not None else ""
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
            remedy="its owner or the audit sends it after its controller; until then it is not reconciled",
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
