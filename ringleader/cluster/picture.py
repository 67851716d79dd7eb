"""Counts of one ring at one moment: shards with their objects and shares, unowned objects, handoffs in flight. Pure.

Owns the picture (`RingPicture`, also the JSON document of `ringleader status`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ringleader.cluster.ring import Ring
from ringleader.cluster.shards import Shard, ring_weights

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class MemberPicture(msgspec.Struct, rename="camel"):
    """One shard of one member; only the active one has an ideal share."""

    member: str
    shard: str
    state: str
    lease_age_seconds: float | None
    objects: int
    share: float
    ideal: float
    in_flight: int
    silent: bool = False
    """It has objects and does not renew its Lease, or is contested: nobody works on them."""


class RingPicture(msgspec.Struct, rename="camel"):
    name: str
    ready: str
    balanced: str
    objects: int
    unowned: int
    in_flight: int
    members: list[MemberPicture]
    misplaced: int = 0
    """Objects whose live owner is not the one that they belong to."""
    paused: bool = False
    releasing: bool = False
    """The ring is being deleted: what has an owner is given up."""
    to_release: int = 0
    """Objects that still carry the label of a ring that is being deleted."""
    released: int = 0
    """Objects given up since the present sharder began to give up the ring."""
    converged_at: str | None = None
    """When everything was last found at its place, and how long after the change that disturbed it."""
    converged_after_seconds: float | None = None
    rate_per_second: float | None = None
    """Objects that come to their places, as it was measured between two looks; None: no second look was needed."""
    seconds_left: float | None = None
    age_seconds: float = 0.0
    """Age of the counts: a busy API server answers late."""
    reported_seconds_ago: float | None = None
    """Objects are what the sharder and the replicas report; the oldest report has this age. None: they were listed."""
    warning: str = ""
    """Why its objects wait, in the words of `ringleader describe ring`; empty if none does."""

    @property
    def to_do(self) -> int:
        """Objects that are not yet at their place, or not yet without an owner if the ring is being deleted."""
        return self.to_release if self.releasing else self.unowned + self.misplaced


class ObjectCount(msgspec.Struct):
    """Objects by shard label and handoffs by the owner they leave, over all resources of a ring."""

    owners: Counter[str] = msgspec.field(default_factory=Counter)
    leaving: Counter[str] = msgspec.field(default_factory=Counter)
    away: Counter[str] = msgspec.field(default_factory=Counter)
    """Objects by the shard that has them although they belong to another one."""
    mains: Counter[str] = msgspec.field(default_factory=Counter)
    """Objects by the main resource that they are or follow; empty: only a controller shows it."""

    def add(
        self, owner: str, *, is_leaving: bool, desired: str = "", main: str = "", number: int = 1
    ) -> None:
        """*number* objects of the shard *owner*; *desired*: the one they belong to, empty: not known, or nobody."""
        self.owners[owner] += number
        self.mains[main] += number
        if is_leaving:
            self.leaving[owner] += number
        if desired and owner != desired:
            self.away[owner] += number


def picture(ring: Ring, found: Sequence[Shard], count: ObjectCount) -> RingPicture:
    """The counts of *ring*; an object is unowned if it bears no name, or that of a shard that is not live."""
    live = {shard.name for shard in found if shard.is_live}
    total = count.owners.total()
    ideal = ideal_shares(ring, found, count.mains)
    releasing = ring.is_deleted
    return RingPicture(
        name=ring.name,
        ready=ring.condition("Ready").status,
        balanced=ring.condition("Balanced").status,
        objects=total,
        unowned=sum(number for name, number in count.owners.items() if name not in live),
        in_flight=count.leaving.total(),
        members=[
            MemberPicture(
                member=shard.member,
                shard=shard.name,
                state=shard.state,
                lease_age_seconds=shard.age_s,
                objects=count.owners[shard.name],
                share=count.owners[shard.name] / total if total else 0.0,
                ideal=ideal.get(shard.member, 0.0) if shard.is_active else 0.0,
                in_flight=count.leaving[shard.name],
                silent=(shard.is_silent or (shard.is_contested and not shard.is_held))
                and bool(count.owners[shard.name]),
            )
            for shard in found
        ],
        misplaced=sum(number for name, number in count.away.items() if name in live),
        paused=ring.spec.paused,
        releasing=releasing,
        to_release=total - count.owners[""] if releasing else 0,
        released=int(ring.status.get("released") or 0) if releasing else 0,
        **_last_convergence(ring),
    )


def _last_convergence(ring: Ring) -> dict[str, Any]:
    last = ring.status.get("lastConvergence") or {}
    return {"converged_at": last.get("time"), "converged_after_seconds": last.get("durationSeconds")}


def ideal_shares(ring: Ring, found: Sequence[Shard], objects: Mapping[str, int] = _NONE) -> dict[str, float]:
    """Each member's share by weight alone: what perfect balance would give it, over all main resources.

    Each of these counts by its *objects*, and by one at least.
    """
    parts = {main: max(1, objects.get(main, 0)) for main in ring.mains or [""]}
    ideal: dict[str, float] = {}
    for main, part in parts.items():
        weights = ring_weights(ring, found, main)
        total = sum(weights.values()) * sum(parts.values())
        for member, weight in weights.items():
            ideal[member] = ideal.get(member, 0.0) + part * weight / total
    return ideal
