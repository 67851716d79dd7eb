"""What a change of the members would move: objects, writes, time. Pure, and nothing but arithmetic on two rings.

Owns the outcome (`Simulation`, also the JSON document of `ringleader simulate`). Objects come in batches, so that any
number of them takes the same memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ring import HashRing, Transition, movement
from ringleader.inspect.simulate.change import MembershipChange, in_order

WRITES_PER_HANDOFF: Final = 2
"""Of an object between live shards: the sharder sets the drain label, the owner passes it on (protocol 5.4, 6.4)."""
WRITES_PER_FOLLOWER: Final = 1
"""Of a controlled object then: its owner passes it on, nobody asks for it."""
WRITES_PER_TAKE_OVER: Final = 1
"""Of any object whose owner is gone: the sharder assigns it (protocol 6.3, 6.5)."""
MOST_FLOWS: Final = 10


class Batch(msgspec.Struct, frozen=True):
    """Keys in the order in which they came; *roots* and *controlled*: how many objects each stands for.

    Without *roots* each stands for one object, without *controlled* nothing follows it. *main*: the main resource that
    these objects are or follow; empty where nobody told it.
    """

    keys: Sequence[str]
    roots: Sequence[int] | None = None
    controlled: Sequence[int] | None = None
    main: str = ""


class Flow(msgspec.Struct, frozen=True, rename="camel"):
    """What one member gives to another."""

    from_member: str
    to_member: str
    objects: int
    controlled: int
    writes: int


class MemberChange(msgspec.Struct, frozen=True, rename="camel"):
    """One member before and after; shares are of the hash space, 0 where it has no place."""

    member: str
    share_before: float
    share_after: float
    objects_before: int
    objects_after: int
    gives: int
    gets: int


class Rate(msgspec.Struct, frozen=True):
    """Objects that change their owner per second, not counting what they control; *source*: given, or measured."""

    objects_per_second: float
    source: str


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """What would move on the ring of some main *resources*, those that the same members work."""

    resources: list[str]
    members_before: int
    members_after: int
    objects: int
    moved: int


class Simulation(msgspec.Struct, frozen=True, rename="camel"):
    """What would move. *objects* and *moved* count controlled objects too; fractions are of the hash space.

    With several *parts* shares and fractions are means: each ring counts by its objects, or by its main resources if
    there are none.
    """

    ring: str
    change: list[str]
    members_before: int
    members_after: int
    objects: int
    controlled: int
    moved: int
    moved_controlled: int
    moved_fraction: float
    least_fraction: float
    writes: int
    seconds: float | None
    rate: Rate | None
    members: list[MemberChange]
    flows: list[Flow]
    parts: list[Part]
    left_out: list[str] = []
    """Main resources of the ring that are not simulated, each with its reason."""


class Tally:
    """Objects by the pair (owner before, owner after), counted while they come.

    *before* and *after*: the ring of each main resource; all of them have members.
    """

    def __init__(self, before: Mapping[str, HashRing], after: Mapping[str, HashRing]) -> None:
        made: dict[tuple[HashRing, HashRing], RingTally] = {}
        self._by_main: dict[str, RingTally] = {}
        for main in before:
            pair = before[main], after[main]
            if pair not in made:
                made[pair] = RingTally(*pair)
            made[pair].mains.append(main)
            self._by_main[main] = made[pair]
        self.parts = list(made.values())

    def add(self, batch: Batch) -> list[str]:
        """Count *batch*. Its keys that move, in their order."""
        return self._by_main.get(batch.main, self.parts[0]).add(batch)

    def sums(self) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
        """Roots and controlled objects, over all rings."""
        roots: Counter[tuple[str, str]] = Counter()
        controlled: Counter[tuple[str, str]] = Counter()
        for part in self.parts:
            roots.update(part.roots)
            controlled.update(part.controlled)
        return roots, controlled

    def weighed(self) -> list[tuple[RingTally, float]]:
        """The rings with what each counts in a mean."""
        numbers = [part.objects for part in self.parts]
        if not any(numbers):
            numbers = [len(part.mains) for part in self.parts]
        return [(part, number / sum(numbers)) for part, number in zip(self.parts, numbers, strict=True)]


class RingTally:
    """Those of the main resources *mains*, which have one ring."""

    def __init__(self, before: HashRing, after: HashRing) -> None:
        self.mains: list[str] = []
        self.before = before
        self.after = after
        self.roots: Counter[tuple[str, str]] = Counter()
        self.controlled: Counter[tuple[str, str]] = Counter()
        self._transition = Transition(before, after)

    @property
    def objects(self) -> int:
        return self.roots.total() + self.controlled.total()

    @property
    def moved(self) -> int:
        counts = (*self.roots.items(), *self.controlled.items())
        return sum(number for (old, new), number in counts if old != new)

    def add(self, batch: Batch) -> list[str]:
        """Count *batch*. Its keys that move, in their order."""
        pairs = self._transition.owners(batch.keys)
        if batch.roots is None:
            self.roots.update(pairs)
        else:
            _count(self.roots, pairs, batch.roots)
        if batch.controlled is not None:
            _count(self.controlled, pairs, batch.controlled)
        return [key for key, (old, new) in zip(batch.keys, pairs, strict=True) if old != new]


def _count(
    counter: Counter[tuple[str, str]], pairs: Sequence[tuple[str, str]], numbers: Sequence[int]
) -> None:
    for pair, number in zip(pairs, numbers, strict=True):
        if number:
            counter[pair] += number


def conclude(
    name: str, change: MembershipChange, tally: Tally, *, rate: Rate | None, left_out: Sequence[str] = ()
) -> Simulation:
    """What *tally* adds up to."""
    roots, controlled = tally.sums()
    flows = _flows(change, roots, controlled)
    total = sum(flow.objects for flow in flows)
    followers = sum(flow.controlled for flow in flows)
    movements = [(movement(part.before, part.after), weight) for part, weight in tally.weighed()]
    return Simulation(
        ring=name,
        change=list(change.told),
        members_before=len({member for part in tally.parts for member in part.before.members}),
        members_after=len({member for part in tally.parts for member in part.after.members}),
        objects=roots.total() + controlled.total(),
        controlled=controlled.total(),
        moved=total,
        moved_controlled=followers,
        moved_fraction=sum(float(moved.moved) * weight for moved, weight in movements),
        least_fraction=sum(float(moved.ideal) * weight for moved, weight in movements),
        writes=sum(flow.writes for flow in flows),
        seconds=(total - followers) / rate.objects_per_second if rate else None,
        rate=rate,
        members=_members(tally, roots + controlled, flows),
        flows=flows,
        parts=[
            Part(part.mains, len(part.before), len(part.after), part.objects, part.moved)
            for part in tally.parts
        ],
        left_out=list(left_out),
    )


def _flows(
    change: MembershipChange, roots: Counter[tuple[str, str]], controlled: Counter[tuple[str, str]]
) -> list[Flow]:
    """Every pair between which something moves, the largest first."""
    pairs = [pair for pair in roots | controlled if pair[0] != pair[1]]
    flows = [
        _flow(old, new, roots[old, new], controlled[old, new], is_gone=old in change.leaving)
        for old, new in pairs
    ]
    return sorted(flows, key=lambda flow: (-flow.objects, flow.from_member, flow.to_member))


def _flow(old: str, new: str, roots: int, controlled: int, *, is_gone: bool) -> Flow:
    writes = roots * WRITES_PER_HANDOFF + controlled * WRITES_PER_FOLLOWER
    if is_gone:
        writes = (roots + controlled) * WRITES_PER_TAKE_OVER
    return Flow(
        from_member=old, to_member=new, objects=roots + controlled, controlled=controlled, writes=writes
    )


def _members(tally: Tally, objects: Counter[tuple[str, str]], flows: Sequence[Flow]) -> list[MemberChange]:
    before: defaultdict[str, float] = defaultdict(float)
    after: defaultdict[str, float] = defaultdict(float)
    for part, weight in tally.weighed():
        for shares, ring in ((before, part.before), (after, part.after)):
            for member, share in ring.shares().items():
                shares[member] += float(share) * weight
    had: Counter[str] = Counter()
    has: Counter[str] = Counter()
    for (old, new), number in objects.items():
        had[old] += number
        has[new] += number
    gives: Counter[str] = Counter()
    gets: Counter[str] = Counter()
    for flow in flows:
        gives[flow.from_member] += flow.objects
        gets[flow.to_member] += flow.objects
    return [
        MemberChange(
            member=member,
            share_before=before[member],
            share_after=after[member],
            objects_before=had[member],
            objects_after=has[member],
            gives=gives[member],
            gets=gets[member],
        )
        for member in in_order([*before.keys() | after.keys()])
    ]
