"""Facts of one ring at one moment. Plain values: they become JSON as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from ring.ring import HashRing
from sharder.membership.hash_rings import mains_by_ring

SECTORS: Final = 720
"""The ring is drawn as so many equal parts of the hash space: half a degree each."""
ROWS: Final = 24
"""Handoffs that are named while they are under way; of more there is a number."""


class MemberFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One member: its place, the shard that fills it, and its part. *objects* is None where they are not counted."""

    place: str
    shard: str = ""
    state: str = "vacant"
    weight: float = 1.0
    share: float = 0.0
    ideal: float = 0.0
    objects: int | None = None
    in_flight: int = 0


class HandoffFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One handoff under way. *since*: seconds since 1970."""

    object: str
    source: str
    target: str
    since: float
    late: bool = False


class RingCircle(msgspec.Struct, frozen=True, rename="camel"):
    """The circle of some main *resources*, those that the same members work.

    *order* names the members that *sectors* number; their *shares* and *ideals* are in that order.
    """

    resources: list[str]
    order: list[str] = []
    sectors: list[int] = []
    shares: list[float] = []
    ideals: list[float] = []


class RingFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One ring. *note* says why it is not worked as usual, *problem* what is wrong.

    *objects*: as the replicas report them; None if one does not.
    *order* names the members that *sectors* number, on the circle of the first main resource. *circles*: every circle,
    if there are several; a member's own share is then the mean. Instants are seconds since 1970.
    """

    version: int = 0
    acting: bool = True
    converged: bool = False
    note: str = ""
    problem: str = ""
    objects: int | None = None
    unowned: int | None = None
    misplaced: int | None = None
    in_flight: int = 0
    late: int = 0
    members: dict[str, MemberFacts] = {}
    handovers: list[HandoffFacts] = []
    order: list[str] = []
    sectors: list[int] = []
    circles: list[RingCircle] = []
    resources: list[str] = []


class ReportedObjects(NamedTuple):
    """Objects as the replicas report them: all with those without an owner, and those of each shard."""

    total: int
    by_shard: Mapping[str, int]


class RingSource(Protocol):
    """One ring that is published. `facts` costs no more than a millisecond: it is asked ten times a second."""

    def facts(self) -> RingFacts: ...


class RingCircles:
    """The circles of one ring; computed once for each of its rings."""

    def __init__(self) -> None:
        self._made_of: list[tuple[str, HashRing | None]] = []
        self._circles: list[RingCircle] = []

    def of(self, by_main: Mapping[str, HashRing | None]) -> list[RingCircle]:
        """The circles of the rings *by_main*, that of the first main resource first."""
        made_of = list(by_main.items())
        if made_of != self._made_of:
            self._circles = [_circle(mains, ring) for ring, mains in mains_by_ring(by_main).items()]
        self._made_of = made_of  # what is the same object is compared in no time
        return self._circles


def _circle(mains: list[str], ring: HashRing | None) -> RingCircle:
    if ring is None or not len(ring):
        return RingCircle(mains)
    order, shares, ideals = list(ring.members), ring.shares(), ring.fair_shares()
    return RingCircle(
        mains,
        order,
        sectors_of(ring),
        [round(float(shares[name]), 6) for name in order],
        [round(float(ideals[name]), 6) for name in order],
    )


def sectors_of(ring: HashRing) -> list[int]:
    """Number of the member, among `ring.members`, that owns the middle of each sector."""
    index = {name: number for number, name in enumerate(ring.members)}
    width = 2**64 // SECTORS
    return [index[ring.owner_of_hash(sector * width + width // 2)] for sector in range(SECTORS)]
