"""The status of a ControllerRing, for people and `ringleader status`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sharder.membership.shards import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeio.models import GroupResource
    from sharder.membership.view import ShardView, View
    from sharder.rings.counts import ObjectCounts

IMPLEMENTATION: Final = "ringleader.dev/sharder"
"""Name of this sharder in the status of a ring; another implementation leaves such a ring alone."""
_SHOWN: Final = 3
_NONE: Final[Mapping[str, int]] = MappingProxyType({})
MOST_ROWS: Final = 5000
"""Rows of `members`: 130 bytes each. etcd takes 1.5 MB, and a status that is refused says nothing at all."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without its transition time, which StatusWriter keeps."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RingProgress:
    """Counts of the components of one ring at the moment.

    *late* is handoffs past their timeout, by owner; *late_objects* are the first of them. *denied*: the missing
    permissions, one text for each. *failing*: the requests that the server has failed for a while. *refused* objects
    may not be changed; *refusals*: some of them, with the server's messages. *removed* are resources taken out of the
    spec whose objects are being given up; *still_labelled* is the number of these objects in the last pass, None if it
    could not see all. *released* are objects given up since this sharder began to give the whole ring up, without the
    objects that they control; None unless the ring is being deleted. *former_holder* holds the former controller's
    Lease instead of the ring; empty if there is none. *former_problem*: why that Lease cannot be read or written.
    """

    unassigned: int
    in_flight: Mapping[str, int]
    late: Mapping[str, int]
    is_converged: bool
    paused: bool
    denied: Sequence[str] = ()
    failing: Sequence[str] = ()
    late_objects: Sequence[str] = ()
    refused: int = 0
    refusals: Sequence[str] = ()
    removed: Sequence[str] = ()
    still_labelled: int | None = None
    released: int | None = None
    last: Convergence | None = None
    rebalanced: Rebalanced | None = None
    deferred: int = 0
    """Names on objects that no shard ever had, and that wait until fewer such names are under care."""
    former_holder: str = ""
    former_problem: str = ""
    activated: bool = True
    counts: ObjectCounts | None = None
    """None if not every replica counts its objects."""
    per_s: float | None = None
    """Objects a second that come to their places; None if nothing is to do, or before the second look."""
    left_s: float | None = None
    unknown_named: int = 0
    """Objects of *unassigned* whose labels name no shard that ever had a Lease. They wait, and stop no other."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """The last time that everything was found at its place, and the seconds since the change that disturbed it."""

    at: str
    took_s: float
    objects: int


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The last convergence for which something had to move: its time, duration and number of moves.

    *took_s* is from the first move to the last: the wait before and the pass after say nothing of how quickly objects
    move. *moved* counts objects without those that they control.
    """

    at: str
    took_s: float
    moved: int


def plan_conditions(view: View, progress: RingProgress) -> list[Condition]:
    """The four conditions of a ring that is being worked, and a fifth while it or some of its resources go."""
    conditions = [
        _ready(view, progress),
        _balanced(view, progress),
        _drain_stuck(progress),
        _uncertain(view, progress),
    ]
    is_releasing = progress.released is not None or progress.removed
    return [*conditions, _releasing(progress)] if is_releasing else conditions


def unserved(kind: GroupResource, remedy: str) -> str:
    """Condition text for a resource that the server does not serve. *remedy* suggests the resource that was meant."""
    return f"{str(kind)!r} is not served: {remedy}, or take it out of spec.resources"


def refused_conditions(reason: str, message: str) -> list[Condition]:
    """The conditions of a ring that cannot be worked as it is."""
    return [Condition("Ready", False, reason, message)]


def plan_status(
    view: View,
    progress: RingProgress,
    *,
    generation: int,
    conditions: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """The whole status document but for its transition times, which *conditions* carry already."""
    counts = progress.counts
    members = plan_members(view, progress.in_flight, counts.by_shard if counts else {})
    status: dict[str, object] = {
        "observedGeneration": generation,
        "sharder": IMPLEMENTATION,
        "conditions": list(conditions),
        "ringVersion": view.ring_version,
        "members": worst_first(members),
        "shards": sum(1 for shard in view.shards.values() if shard.state.is_live),
        "availableShards": sum(
            1 for member in members if (member["place"], member["state"]) == ("filled", "ready")
        ),
        "unassigned": progress.unassigned,
        "inFlight": sum(progress.in_flight.values()),
        "objects": sum(counts.by_shard.values()) + progress.unassigned if counts else None,
        "misplaced": counts.misplaced if counts else None,
        "progress": _pace(progress),
    }
    if progress.released is not None:
        status["released"] = progress.released
    if progress.last is not None:
        status["lastConvergence"] = {
            "time": progress.last.at,
            "durationSeconds": round(progress.last.took_s, 3),
            "objects": progress.last.objects,
        }
    if progress.rebalanced is not None:
        status["lastRebalance"] = {
            "time": progress.rebalanced.at,
            "durationSeconds": round(progress.rebalanced.took_s, 3),
            "moved": progress.rebalanced.moved,
        }
    return status


def _pace(progress: RingProgress) -> dict[str, object] | None:
    if progress.per_s is None:
        return None
    left = {} if progress.left_s is None else {"secondsLeft": round(progress.left_s)}
    return {"objectsPerSecond": float(f"{progress.per_s:.3g}"), **left}


def with_times(
    conditions: Sequence[Condition],
    before: Sequence[Mapping[str, object]],
    *,
    now: str,
    generation: int,
) -> list[dict[str, object]]:
    """*conditions* as the API wants them; the transition time moves only when the status does."""
    known = {str(old.get("type")): old for old in before}
    return [_dated(condition, known.get(condition.type), now, generation) for condition in conditions]


def _dated(
    condition: Condition, old: Mapping[str, object] | None, now: str, generation: int
) -> dict[str, object]:
    status = "True" if condition.status else "False"
    same = old is not None and old.get("status") == status
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": old["lastTransitionTime"] if same and old else now,
    }


def _ready(view: View, progress: RingProgress) -> Condition:
    if progress.denied:
        return Condition("Ready", False, "Forbidden", _some(progress.denied))
    if progress.failing:
        return Condition("Ready", False, "ResourceFails", _some(progress.failing))
    if progress.released is not None:
        return Condition("Ready", False, "Releasing", f"the ring is being given up: {_given_up(progress)}")
    if progress.former_problem and not progress.activated:
        return Condition("Ready", False, "FormerLease", f"no object gets an owner{_troubles(progress)}")
    if progress.former_holder:
        message = f"{progress.former_holder} holds the former controller's Lease: no object may have an owner"
        return Condition("Ready", False, "FormerController", message)
    ready = sum(1 for place in view.places.values() if place.shard is not None)
    if view.hold is not None:
        return Condition(
            "Ready", False, "Waiting", f"objects without an owner wait: {view.hold.reason.value}"
        )
    if view.unworked:
        named = ", ".join(view.unworked)
        return Condition("Ready", False, "KindUnworked", f"no member works {named}: such objects wait")
    reason = "FormerLease" if progress.former_problem else "Refused" if progress.refused else "Working"
    return Condition("Ready", True, reason, f"{ready} members share the objects{_troubles(progress)}")


def _troubles(progress: RingProgress) -> str:
    """What should be mended although the ring works, or is being given up; each after a semicolon."""
    former = f"; {progress.former_problem}" if progress.former_problem else ""
    if not progress.refused:
        return former
    refused = f"the API server refuses to label {progress.refused:,} objects: {'; '.join(progress.refusals)}"
    return f"{former}; {refused}"


def _given_up(progress: RingProgress) -> str:
    moving = sum(progress.in_flight.values())
    text = f"{progress.released or 0:,} objects given up, {moving:,} being given up"
    return f"{text}{_unknown_named(progress)}{_troubles(progress)}"


def _unknown_named(progress: RingProgress) -> str:
    if not progress.unknown_named:
        return ""
    return (
        f"; {progress.unknown_named:,} objects wait since their labels name no shard: "
        "100 such names are given up in about maxLeaseDurationSeconds"
    )


def _balanced(view: View, progress: RingProgress) -> Condition:
    if progress.released is not None:
        return Condition("Balanced", False, "Releasing", "no object has a place on a ring that is given up")
    if view.ring is None:
        return Condition("Balanced", False, "NoMembers", "no member is on the ring")
    if progress.paused:
        return Condition("Balanced", progress.is_converged, "Paused", "nothing moves between live shards")
    if progress.is_converged and progress.unassigned <= progress.unknown_named:
        return Condition(
            "Balanced", True, "Converged", f"every object is at its place{_unknown_named(progress)}"
        )
    moving = sum(progress.in_flight.values())
    return Condition(
        "Balanced",
        False,
        "Moving",
        f"{progress.unassigned} objects without an owner, {moving} being handed over",
    )


def _drain_stuck(progress: RingProgress) -> Condition:
    if not progress.late:
        return Condition("DrainStuck", False, "None", "")
    named = ", ".join(f"{shard} ({count})" for shard, count in sorted(progress.late.items()))
    first = f"; first: {', '.join(progress.late_objects)}" if progress.late_objects else ""
    return Condition("DrainStuck", True, "DrainTimeout", f"handoffs past drainTimeoutSeconds: {named}{first}")


def _releasing(progress: RingProgress) -> Condition:
    if progress.released is not None:
        return Condition("Releasing", True, "RingDeleted", _given_up(progress))
    named = ", ".join(progress.removed)
    if progress.still_labelled is None:
        return Condition("Releasing", True, "Unseen", f"not all objects could be listed: {named}")
    count = progress.still_labelled
    return Condition("Releasing", True, "ResourceRemoved", f"{count} objects still carry labels: {named}")


def _uncertain(view: View, progress: RingProgress) -> Condition:
    members = sorted(view.uncertain_members)
    problems = _some([str(problem) for problem in view.problems])
    if members:
        return Condition("MembersUncertain", True, "Silent", f"members do not renew: {', '.join(members)}")
    if problems:
        return Condition("MembersUncertain", True, "BadLease", problems)
    if progress.deferred:
        return Condition(
            "MembersUncertain",
            True,
            "UnknownNames",
            f"{progress.deferred} names on objects are no shard's and wait until others of them are dead; "
            "who writes shard labels?",
        )
    return Condition("MembersUncertain", False, "AllHeard", "")


def _some(texts: Sequence[str]) -> str:
    """The first few of *texts*, and how many more there are."""
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def shares_by_shard(view: View) -> dict[str, float]:
    """Part of the ring of each shard that fills a place."""
    shares = view.shares()
    return {place.shard: float(shares.get(member, 0)) for member, place in view.places.items() if place.shard}


def plan_members(
    view: View, in_flight: Mapping[str, int], objects: Mapping[str, int] = _NONE
) -> list[dict[str, object]]:
    """One row for each member that has a place, or a shard whose objects cannot move yet; by name."""
    shares = view.shares()
    shown = _shown_shards(view)
    rows: list[dict[str, object]] = []
    for member in sorted(view.places.keys() | shown):
        place = view.places.get(member)
        name = (place.shard or "") if place is not None else shown[member].name
        shard = view.shards.get(name)
        rows.append(
            {
                "name": member,
                "place": "none" if place is None else "filled" if name else "settling",
                "shard": name,
                "state": shard.shown_state if shard else "vacant",
                "weight": float(place.weight) if place is not None else 0.0,
                "share": round(float(shares.get(member, 0)), 6),
                "inFlight": in_flight.get(name, 0),
                **({"objects": objects[name]} if name in objects else {}),
                **({"reason": shard.unplaced.value} if shard and shard.unplaced else {}),
            }
        )
    return rows


def worst_first(rows: list[dict[str, object]], *, most: int = MOST_ROWS) -> list[dict[str, object]]:
    """*rows* of members, or *most* of them: those that are not as they should be before the others; by name."""
    if len(rows) <= most:
        return rows
    chosen = sorted(rows, key=lambda row: (row["place"], row["state"]) == ("filled", "ready"))[:most]
    return sorted(chosen, key=lambda row: str(row["name"]))


def _shown_shards(view: View) -> dict[str, ShardView]:
    """One shard of each member that is not dead: a live one if there is any, then by name."""
    shards = [shard for shard in view.shards.values() if shard.state is not ShardState.DEAD]
    return {
        shard.member: shard for shard in sorted(shards, key=lambda shard: (shard.state.is_live, shard.name))
    }
