"""The status of a ControllerRing: what people and `ringleader status` read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sharder.view import View

IMPLEMENTATION: Final = "ringleader.dev/sharder"
"""Which sharder works a ring stands in its status; another implementation leaves such a ring alone."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without its transition time: that is the writer's to keep."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What the rooms of one ring count at the moment; *late* is handoffs past their timeout, by owner."""

    unassigned: int
    in_flight: Mapping[str, int]
    late: Mapping[str, int]
    is_converged: bool
    paused: bool


def plan_conditions(view: View, progress: Progress) -> list[Condition]:
    """The four conditions of a ring that is being worked."""
    return [
        _ready(view),
        _balanced(view, progress),
        _drain_stuck(progress),
        _uncertain(view),
    ]


def refused_conditions(reason: str, message: str) -> list[Condition]:
    """The conditions of a ring that cannot be worked as it is."""
    return [Condition("Ready", False, reason, message)]


def plan_status(
    view: View,
    progress: Progress,
    *,
    generation: int,
    conditions: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """The whole status document but for its transition times, which *conditions* carry already."""
    members = _members(view, progress)
    return {
        "observedGeneration": generation,
        "sharder": IMPLEMENTATION,
        "conditions": list(conditions),
        "ringVersion": view.ring_version,
        "members": members,
        "shards": sum(1 for life in view.lives.values() if life.state.is_live),
        "availableShards": sum(1 for member in members if member["state"] == "ready"),
        "unassigned": progress.unassigned,
        "inFlight": sum(progress.in_flight.values()),
    }


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


def _ready(view: View) -> Condition:
    ready = sum(1 for place in view.places.values() if place.shard is not None)
    if view.hold is not None:
        return Condition(
            "Ready", False, "Waiting", f"objects without an owner wait: {view.hold.reason.value}"
        )
    return Condition("Ready", True, "Working", f"{ready} members share the objects")


def _balanced(view: View, progress: Progress) -> Condition:
    if progress.paused:
        return Condition("Balanced", progress.is_converged, "Paused", "nothing moves between live shards")
    if progress.is_converged and not progress.unassigned:
        return Condition("Balanced", True, "Converged", "every object is at its place")
    moving = sum(progress.in_flight.values())
    return Condition(
        "Balanced",
        False,
        "Moving",
        f"{progress.unassigned} objects without an owner, {moving} being handed over",
    )


def _drain_stuck(progress: Progress) -> Condition:
    if not progress.late:
        return Condition("DrainStuck", False, "None", "")
    named = ", ".join(f"{shard} ({count})" for shard, count in sorted(progress.late.items()))
    return Condition("DrainStuck", True, "DrainTimeout", f"handoffs past drainTimeoutSeconds: {named}")


def _uncertain(view: View) -> Condition:
    members = sorted(view.uncertain_members)
    problems = "; ".join(str(problem) for problem in view.problems[:3])
    if members:
        return Condition("MembersUncertain", True, "Silent", f"members do not renew: {', '.join(members)}")
    if problems:
        return Condition("MembersUncertain", True, "BadLease", problems)
    return Condition("MembersUncertain", False, "AllHeard", "")


def _members(view: View, progress: Progress) -> list[dict[str, object]]:
    shares = view.ring.shares() if view.ring is not None else {}
    rows: list[dict[str, object]] = []
    for place in sorted(view.places.values(), key=lambda place: place.member):
        life = view.lives.get(place.shard or "")
        rows.append(
            {
                "name": place.member,
                "shard": place.shard or "",
                "state": life.state.value if life else "vacant",
                "weight": float(place.weight),
                "share": round(float(shares.get(place.member, 0)), 6),
                "inFlight": progress.in_flight.get(place.shard or "", 0),
            }
        )
    return rows
