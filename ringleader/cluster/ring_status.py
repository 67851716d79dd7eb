"""Status of one ring: its shards with their objects and shares, unowned objects, handoffs in flight, the pace. Pure.

The sharder counts: totals, misplaced objects, rate and time left are those of the ring's `.status`. The objects of a
shard are those that its replica writes into its Lease; the sharder sums its totals from these. `status --count` gives
both from a list of the objects instead.
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


class MemberStatus(msgspec.Struct, rename="camel"):
    """One shard of one member; only the active one has an ideal share. *objects* is None if its Lease does not say."""

    member: str
    shard: str
    state: str
    lease_age_seconds: float | None
    objects: int | None
    share: float | None
    ideal: float
    in_flight: int
    silent: bool = False
    """It has objects and does not renew its Lease, or is contested: they are not reconciled."""


class RingStatus(msgspec.Struct, rename="camel"):
    """The JSON document of one ring. A number that the sharder has not reported is None."""

    name: str
    ready: str
    balanced: str
    objects: int | None
    unowned: int | None
    in_flight: int
    members: list[MemberStatus]
    misplaced: int | None = 0
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
    """Objects that come to their places, as the sharder measures it; None: nothing is to do, or it does not say."""
    seconds_left: float | None = None
    age_seconds: float = 0.0
    """Age of the counts: a list of many objects takes time."""
    reported_seconds_ago: float | None = None
    """Age of the oldest report of a replica. None: the objects were listed, or not counted."""
    warning: str = ""
    """Why its objects wait, in the words of `ringleader describe ring`; empty if none does."""

    @property
    def is_counted(self) -> bool:
        """Whether the number of objects is known."""
        return self.objects is not None

    @property
    def to_do(self) -> int:
        """Objects that are not yet at their place, or not yet without an owner if the ring is being deleted."""
        return self.to_release if self.releasing else (self.unowned or 0) + (self.misplaced or 0)


class ObjectCount(msgspec.Struct):
    """Listed objects of a ring by shard label, and handoffs by the owner that they leave."""

    owners: Counter[str] = msgspec.field(default_factory=Counter)
    leaving: Counter[str] = msgspec.field(default_factory=Counter)
    away: Counter[str] = msgspec.field(default_factory=Counter)
    """Objects by the shard that has them although they belong to another one."""
    mains: Counter[str] = msgspec.field(default_factory=Counter)
    """Objects by the main resource that they are or follow; empty: only a controller shows it."""

    def add(
        self, owner: str, *, is_leaving: bool, desired: str = "", main: str = "", number: int = 1
    ) -> None:
        """*number* objects of the shard *owner*; *desired*: the shard to which they belong, empty if there is none."""
        self.owners[owner] += number
        self.mains[main] += number
        if is_leaving:
            self.leaving[owner] += number
        if desired and owner != desired:
            self.away[owner] += number


def reported_status(ring: Ring, shards: Sequence[Shard]) -> RingStatus:
    """*ring* as the sharder counts it, with the counts that the replicas of *shards* report."""
    status, rows = ring.status, ring.status.get("members") or []
    by_main: Counter[str] = Counter()
    for shard in shards:
        if shard.is_live and shard.objects:
            by_main.update({main: shard.objects.get(main, 0) for main in ring.mains})
    shown = _status(
        ring,
        shards,
        objects=_number(status, "objects"),
        owned={shard.name: shard.count(ring.mains) if shard.is_live else 0 for shard in shards},
        leaving={str(row.get("shard")): int(row.get("inFlight") or 0) for row in rows},
        mains=by_main,
    )
    ages = [shard.age_s for shard in shards if shard.is_held and shard.age_s is not None]
    shown.in_flight, shown.unowned = _number(status, "inFlight") or 0, _number(status, "unassigned")
    if shown.objects is None:
        return shown
    shown.misplaced = _number(status, "misplaced")
    shown.reported_seconds_ago = round(max(0.0, *ages), 1) if ages else 0.0
    if shown.releasing:
        shown.to_release, shown.objects = shown.objects, shown.objects + shown.released
    return shown


def counted_status(ring: Ring, shards: Sequence[Shard], count: ObjectCount) -> RingStatus:
    """*ring* as a list of its objects shows it; an object is unowned if its label names no live shard."""
    live = {shard.name for shard in shards if shard.is_live}
    total = count.owners.total()
    owned = {shard.name: count.owners[shard.name] for shard in shards}
    shown = _status(ring, shards, objects=total, owned=owned, leaving=count.leaving, mains=count.mains)
    shown.unowned = sum(number for name, number in count.owners.items() if name not in live)
    shown.misplaced = sum(number for name, number in count.away.items() if name in live)
    shown.in_flight = count.leaving.total()
    shown.to_release = total - count.owners[""] if shown.releasing else 0
    return shown


def _status(
    ring: Ring,
    shards: Sequence[Shard],
    *,
    objects: int | None,
    owned: Mapping[str, int | None],
    leaving: Mapping[str, int],
    mains: Mapping[str, int],
) -> RingStatus:
    """The parts that do not depend on who counted; *owned* and *leaving* are by shard, *mains* by main resource."""
    # replicas may have counted objects that the sharder's total does not have yet
    total = max(objects or 0, sum(number or 0 for number in owned.values()))
    ideal = ideal_shares(ring, shards, mains)
    progress, last = ring.status.get("progress") or {}, ring.status.get("lastConvergence") or {}
    return RingStatus(
        name=ring.name,
        ready=ring.condition("Ready").status,
        balanced=ring.condition("Balanced").status,
        objects=objects,
        unowned=None,
        misplaced=None,
        in_flight=0,
        members=[
            _member(shard, owned[shard.name], leaving.get(shard.name, 0), total=total, ideal=ideal)
            for shard in shards
        ],
        paused=ring.spec.paused,
        releasing=ring.is_deleted,
        released=_number(ring.status, "released") or 0 if ring.is_deleted else 0,
        converged_at=last.get("time"),
        converged_after_seconds=last.get("durationSeconds"),
        rate_per_second=progress.get("objectsPerSecond"),
        seconds_left=progress.get("secondsLeft"),
    )


def _member(
    shard: Shard, objects: int | None, leaving: int, *, total: int, ideal: Mapping[str, float]
) -> MemberStatus:
    is_silent = shard.is_silent or (shard.is_contested and not shard.is_held)
    return MemberStatus(
        member=shard.member,
        shard=shard.name,
        state=shard.state,
        lease_age_seconds=shard.age_s,
        objects=objects,
        share=None if objects is None else objects / total if total else 0.0,
        ideal=ideal.get(shard.member, 0.0) if shard.is_active else 0.0,
        in_flight=leaving,
        silent=is_silent and bool(objects),
    )


def _number(status: Mapping[str, Any], field: str) -> int | None:
    value = status.get(field)
    return value if isinstance(value, int) else None


def ideal_shares(ring: Ring, shards: Sequence[Shard], objects: Mapping[str, int] = _NONE) -> dict[str, float]:
    """Each member's share by weight alone: what perfect balance would give it, over all main resources.

    Each of these counts by its *objects*, and by one at least.
    """
    parts = {main: max(1, objects.get(main, 0)) for main in ring.mains or [""]}
    ideal: dict[str, float] = {}
    for main, part in parts.items():
        weights = ring_weights(ring, shards, main)
        total = sum(weights.values()) * sum(parts.values())
        for member, weight in weights.items():
            ideal[member] = ideal.get(member, 0.0) + part * weight / total
    return ideal
