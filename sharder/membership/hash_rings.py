"""The rings of one moment's members: one of all, and one for each main resource that not all of them work. Pure.

A ring of 1,000 members takes seconds of a busy core: `RingInputs` is a value that may be made on another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ring.errors import InvalidRing
from ring.ring import HashRing
from sharder.errors import FieldProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sharder.membership.places import Place
    from sharder.ringspec.spec import RingSpec

BUILT_AT_ONCE: Final = 200_000
"""Tokens: 0.3 s of a core, for which the event loop may stand still."""


class ResourceRings(NamedTuple):
    """The ring of all members, and by main resource those of fewer."""

    whole: HashRing | None
    apart: Mapping[str, HashRing | None]


@dataclass(frozen=True, slots=True)
class RingInputs:
    """Inputs of the rings. *apart*: the kinds of each member that does not work all of *mains*."""

    members: Mapping[str, float]
    apart: Mapping[str, frozenset[str] | None]
    mains: Sequence[str]
    spec: RingSpec
    like: HashRing | None
    """The last ring: tokens of members that stay are taken from it."""

    @property
    def made_of(self) -> object:
        """Equal for rings that are the same."""
        return (self.members, self.apart, self.mains, self.spec.virtual_nodes, self.spec.eps)

    @property
    def tokens(self) -> float:
        """Approximate number of tokens on the ring of all members."""
        return sum(self.members.values()) * self.spec.virtual_nodes

    def make(self) -> ResourceRings | FieldProblem:
        """The rings, or what of the spec stands against them."""
        try:
            whole = self._ring(self.members, self.like)
            return ResourceRings(whole, self._apart(whole))
        except InvalidRing as error:
            return FieldProblem(f"spec.{error.field}", error.value, error.problem, error.remedy)

    def _apart(self, whole: HashRing | None) -> Mapping[str, HashRing | None]:
        """The ring of each main that some members do not work; the same members have the same ring."""
        rings: dict[str, HashRing | None] = {}
        made: dict[frozenset[str], HashRing | None] = {}
        for main in self.mains:
            out = {name for name, works in self.apart.items() if works is not None and main not in works}
            if out:
                workers = {name: weight for name, weight in self.members.items() if name not in out}
                among = frozenset(workers)
                if among not in made:
                    made[among] = self._ring(workers, whole)
                rings[main] = made[among]
        return rings

    def _ring(self, members: Mapping[str, float], like: HashRing | None) -> HashRing | None:
        if not members:
            return None
        return HashRing(members, virtual_nodes=self.spec.virtual_nodes, eps=self.spec.eps, like=like)


class RingBuilder:
    """The rings of the present places, built anew when those change.

    *builds_elsewhere*: the owner builds large rings off the event loop: `wanted`. The last ones go on until then, but
    for resources that one of their members does not work by now: no member gets objects of these.
    """

    def __init__(self, *, builds_elsewhere: bool) -> None:
        self.whole: HashRing | None = None
        self.problem: FieldProblem | None = None
        """Problem of the spec that kept the last rings from being built."""
        self.wanted: RingInputs | None = None
        """Large rings to be built, and passed to `note_built`."""
        self._builds_elsewhere = builds_elsewhere
        self._made_of: object = None
        self._apart: Mapping[str, HashRing | None] = {}

    @property
    def apart(self) -> Mapping[str, HashRing | None]:
        """The ring of each main resource that not every member works; None: no member gets objects of it."""
        if self.wanted is None:
            return self._apart
        return {**self._apart, **dict.fromkeys(self._misleading(self.wanted))}

    def follow(self, places: Collection[Place], spec: RingSpec) -> None:
        """Have the rings of *places* built, unless they are those of the last call."""
        mains = spec.mains
        members = {place.member: place.weight for place in places}
        apart = {place.member: place.resources for place in places if not _covers(place.resources, mains)}
        wanted = RingInputs(members, apart, mains, spec, like=self.whole)
        if wanted.made_of == self._made_of:
            self.wanted = None
        elif self._builds_elsewhere and wanted.tokens > BUILT_AT_ONCE:
            self.wanted = wanted
        else:
            self.note_built(wanted, wanted.make())

    def note_built(self, wanted: RingInputs, built: ResourceRings | FieldProblem) -> None:
        """*built* is the result of *wanted*; these inputs may be older than the ones wanted now."""
        self._made_of, self.wanted = wanted.made_of, None
        if isinstance(built, FieldProblem):
            self.problem = built
        else:
            self.whole, self._apart, self.problem = built.whole, built.apart, None

    def _misleading(self, wanted: RingInputs) -> Iterator[str]:
        """Main resources whose ring, as it was built, has a member that does not work them."""
        for main in wanted.mains:
            ring = self._apart.get(main, self.whole)
            idle = (name for name, works in wanted.apart.items() if works is not None and main not in works)
            if ring is not None and any(name in ring for name in idle):
                yield main


def _covers(resources: frozenset[str] | None, mains: Sequence[str]) -> bool:
    return resources is None or resources.issuperset(mains)


def mains_by_ring(by_main: Mapping[str, HashRing | None]) -> dict[HashRing | None, list[str]]:
    """The main resources of each of the rings *by_main*, in their order."""
    found: dict[HashRing | None, list[str]] = {}
    for main, ring in by_main.items():
        found.setdefault(ring, []).append(main)
    return found


def mean_shares(by_main: Mapping[str, HashRing | None]) -> dict[str, float]:
    """Each member's part of the hash space, as the mean over the rings *by_main*."""
    total: dict[str, float] = {}
    for ring, mains in mains_by_ring(by_main).items():
        for member, share in ring.shares().items() if ring is not None else ():
            total[member] = total.get(member, 0.0) + float(share) * len(mains) / len(by_main)
    return total
