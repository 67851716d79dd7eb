"""What a change of the members would move: objects, writes, time. Pure, and nothing but arithmetic on two rings.

Owns the outcome (`Simulation`, also the JSON document of `ringleader simulate`). Objects come in batches, so that any
number of them takes the same memory. Called by `simulate` and by plots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from ring import HashRing, Transition, movement
from ringleader.inspect.simulate.change import Change, in_order

WRITES_PER_HANDOFF: Final = 2
"""Of an object between live shards: the sharder sets the drain label, the owner passes it on (protocol 5.4, 6.4)."""
WRITES_PER_FOLLOWER: Final = 1
"""Of a controlled object then: its owner passes it on, nobody asks for it."""
WRITES_PER_TAKE_OVER: Final = 1
"""Of any object whose owner is gone: the sharder assigns it (protocol 6.3, 6.5)."""
MOST_FLOWS: Final = 10


class Batch(msgspec.Struct, frozen=True):
    """Keys in the order in which they came; *roots* and *controlled*: how many objects each stands for.

    Without *roots* each stands for one object, without *controlled* nothing follows it.
    """

    keys: Sequence[str]
    roots: Sequence[int] | None = None
    controlled: Sequence[int] | None = None


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


class Simulation(msgspec.Struct, frozen=True, rename="camel"):
    """What would move. *objects* and *moved* count controlled objects too; fractions are of the hash space."""

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


class Tally:
    """Objects by the pair (owner before, owner after), counted while they come."""

    def __init__(self, before: HashRing, after: HashRing) -> None:
        self.before = before
        self.after = after
        self.roots: Counter[tuple[str, str]] = Counter()
        self.controlled: Counter[tuple[str, str]] = Counter()
        self._transition = Transition(before, after)

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


def conclude(name: str, change: Change, tally: Tally, *, rate: Rate | None) -> Simulation:
    """What *tally* adds up to."""
    moved = movement(tally.before, tally.after)
    flows = _flows(change, tally)
    total = sum(flow.objects for flow in flows)
    followers = sum(flow.controlled for flow in flows)
    return Simulation(
        ring=name,
        change=list(change.told),
        members_before=len(tally.before),
        members_after=len(tally.after),
        objects=tally.roots.total() + tally.controlled.total(),
        controlled=tally.controlled.total(),
        moved=total,
        moved_controlled=followers,
        moved_fraction=float(moved.moved),
        least_fraction=float(moved.ideal),
        writes=sum(flow.writes for flow in flows),
        seconds=(total - followers) / rate.objects_per_second if rate else None,
        rate=rate,
        members=_members(tally, flows),
        flows=flows,
    )


def _flows(change: Change, tally: Tally) -> list[Flow]:
    """Every pair between which something moves, the largest first."""
    pairs = [pair for pair in tally.roots | tally.controlled if pair[0] != pair[1]]
    flows = [
        _flow(old, new, tally.roots[old, new], tally.controlled[old, new], is_gone=old in change.leaving)
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


def _members(tally: Tally, flows: Sequence[Flow]) -> list[MemberChange]:
    before, after = tally.before.shares(), tally.after.shares()
    had: Counter[str] = Counter()
    has: Counter[str] = Counter()
    for counter in (tally.roots, tally.controlled):
        for (old, new), number in counter.items():
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
            share_before=float(before.get(member, 0)),
            share_after=float(after.get(member, 0)),
            objects_before=had[member],
            objects_after=has[member],
            gives=gives[member],
            gets=gets[member],
        )
        for member in in_order([*before.keys() | after.keys()])
    ]
