"""What the page shows of one ring at one moment. Plain values: they become JSON as they are."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ring.ring import HashRing

SECTORS: Final = 720
"""The ring is drawn as so many equal parts of the hash space: half a degree each."""
ROWS: Final = 24
"""Handoffs that are named while they are under way; of more there is a number."""


class MemberFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One member: its place, the life that fills it, and its part. *objects* is None where nobody counts them."""

    place: str
    shard: str = ""
    state: str = "vacant"
    weight: float = 1.0
    share: float = 0.0
    ideal: float = 0.0
    objects: int | None = None
    in_flight: int = 0


class Handover(msgspec.Struct, frozen=True, rename="camel"):
    """One handoff under way. *since*: seconds since 1970."""

    object: str
    source: str
    target: str
    since: float
    late: bool = False


class RingFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One ring. *note* says why it is not worked as usual, *problem* what is wrong.

    *objects* were counted at *counted_at*; what is shown was read at *read_at*, None: it is what the teller knows.
    *order* names the members that *sectors* number. Instants are seconds since 1970.
    """

    version: int = 0
    acting: bool = True
    converged: bool = False
    note: str = ""
    problem: str = ""
    read_at: float | None = None
    objects: int | None = None
    counted_at: float | None = None
    unowned: int | None = None
    misplaced: int | None = None
    in_flight: int = 0
    late: int = 0
    members: dict[str, MemberFacts] = {}
    handovers: list[Handover] = []
    order: list[str] = []
    sectors: list[int] = []
    resources: list[str] = []


class Found(msgspec.Struct, frozen=True, rename="camel"):
    """Where one object is and belongs. *position* is its place on the ring, from 0 to 1."""

    object: str
    owner: str
    owner_member: str
    owner_state: str
    desired_member: str
    desired_shard: str
    drain_to: str | None
    key: str
    hash: str
    position: float | None
    is_placed: bool
    story: list[str]


class NotFoundHere(Exception):
    """What was asked for does not exist; the text is for people."""


class Subject(Protocol):
    """One ring that is shown. `facts` costs no more than a millisecond: it is asked ten times a second."""

    def facts(self) -> RingFacts: ...
    def hash_ring(self) -> HashRing | None: ...
    async def find(self, resource: str, namespace: str, name: str) -> Found:
        """Raises NotFoundHere, InputError, KubeError."""


class Sectors:
    """Who owns which part of the circle; computed once for each ring."""

    def __init__(self) -> None:
        self._ring: HashRing | None = None
        self._order: list[str] = []
        self._sectors: list[int] = []

    def of(self, ring: HashRing | None) -> tuple[list[str], list[int]]:
        """Names, and for each sector the number of the one who owns its middle."""
        if ring is not self._ring:
            self._ring = ring
            self._order = list(ring.members) if ring is not None else []
            self._sectors = _sectors(ring, self._order) if ring is not None and self._order else []
        return self._order, self._sectors


def _sectors(ring: HashRing, order: list[str]) -> list[int]:
    index = {name: number for number, name in enumerate(order)}
    width = 2**64 // SECTORS
    return [index[ring.owner_of_hash(sector * width + width // 2)] for sector in range(SECTORS)]
