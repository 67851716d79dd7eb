"""Causes: why no sharder leads, and why a ring has to wait, with the remedy. Pure.

`describe`, `check`, `status` and `top` read one judgement from here: same cluster, same cause, same words. The causes
of one object are in `object_causes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.shards import ring_weights
from ringleader.cluster.snapshot import ELECTION_LEASE

if TYPE_CHECKING:
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import Leadership, RingState, Snapshot

START: Final = (
    "start replicas of the controller that works it, or take the resource out of the ring's spec.resources"
)
_REMEDIES: Final = {
    "FormerController": "scale the former controller to zero: it works beside the replicas",
    "FormerLease": "let the sharder get, create and update that Lease; or, if the former controller is gone for good, "
    "take activation out of the ring's spec",
    "KindUnworked": START,
}
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


def why_no_leader(leadership: Leadership) -> Cause | None:
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
    if (no_leader := why_no_leader(snapshot.leadership)) is not None:
        return no_leader
    if ring.refusal:
        text = f"the sharder refuses ring {name}: {ring.refusal}"
        return Cause("RingRefused", text, remedy="correct that field of the ring")
    if state.former_holder and (former := ring.spec.activation) is not None:
        return Cause(
            "FormerController",
            f"ring {name} waits until {state.former_holder} gives the former controller's Lease"
            f" {former.namespace}/{former.name} back",
            remedy=not_ready_remedy("FormerController", name),
        )
    ready = ring.condition("Ready")
    since = seconds_since(ready.since, snapshot.now)
    before_replicas = ("Forbidden", "InvalidSpec", "ResourceFails", "FormerController", "FormerLease")
    if ready.status == "False" and ready.reason in before_replicas:
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
    # a kind without a member that works it is another one than *main*
    return _not_ready(snapshot, state) if ready.reason not in ("KindUnworked", "Releasing") else None


def not_ready_remedy(reason: str, ring: str) -> str:
    """What to do for a ring whose condition Ready is False for *reason*."""
    return _REMEDIES.get(reason, f"correct what the message names: kubectl edit controllerring {ring}")


def _not_ready(snapshot: Snapshot, state: RingState) -> Cause | None:
    ready = state.ring.condition("Ready")
    if ready.status != "False":
        return None
    return Cause(
        "RingNotReady",
        f"ring {state.name} is not ready: {ready.message or ready.reason}",
        since_seconds=seconds_since(ready.since, snapshot.now),
        remedy=not_ready_remedy(ready.reason, state.name),
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
    """Everything for which objects of the ring wait: for an owner, or for one that renews its Lease.

    Objects of a ring that is being deleted wait for no owner, but for a sharder that gives them up.
    """
    is_deleted = state.ring.is_deleted
    whole = why_no_leader(snapshot.leadership) if is_deleted else why_ring_waits(snapshot, state)
    mains = [] if whole or is_deleted else state.ring.mains
    by_main = [why_ring_waits(snapshot, state, main) for main in mains]
    waits = [cause for cause in (whole, *by_main) if cause is not None]
    silent = [silence(each, snapshot.leadership) for each in silent_shards(state)]
    return [*waits, *(msgspec.structs.replace(each, text=f"shard {each.text}") for each in silent)]


def ring_notes(snapshot: Snapshot, state: RingState) -> str:
    """The causes of `ring_causes` in one line; without the silent shards, which a list of shards shows."""
    return "; ".join(cause.text for cause in ring_causes(snapshot, state) if cause.reason != "Silent")


def silent_shards(state: RingState) -> list[Shard]:
    """Shards that hold their Leases and do not renew them, by name."""
    return [shard for shard in state.held if shard.is_silent]


def silence(shard: Shard, leadership: Leadership) -> Cause:
    """That *shard* does not renew its Lease, and what becomes of its objects."""
    text, remedy = "", "the sharder gives its objects away after two Lease durations"
    if (no_leader := why_no_leader(leadership)) is not None:
        text = f", and {no_leader.text}"
        remedy = f"its objects stay with it until a sharder leads: {no_leader.remedy}"
    return Cause(
        "Silent",
        f"{shard.name} does not renew its Lease: frozen, cut off, or dead{text}",
        since_seconds=shard.age_s,
        remedy=f"look at pod {shard.pod.name} and its log; {remedy}",
        evidence=[f"its Lease lasts {shard.duration_s:g} s"],
    )


def unworked(ring: str, main: str) -> str:
    """Why objects of *main*, and what follows them, get no owner."""
    return f"no member of ring {ring} works {main}"


def some(names: list[str], *, shown: int = 3) -> str:
    """The first few of *names*, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
