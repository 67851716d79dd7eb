"""Movement between two rings: exact, as a fraction of the hash space, and for given keys.

Owns the comparison only. Decides neither the time nor the way in which objects move.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from ring.arcs import page_index
from ring.errors import EmptyRingError
from ring.hashing import HASH_SPACE, hash_keys
from ring.ring import HashRing


@dataclass(frozen=True, slots=True)
class Movement:
    """The parts of the hash space that change their owner."""

    flows: Mapping[tuple[str, str], Fraction]
    """By (from, to); only pairs between which something moves, in order of the names."""
    ideal: Fraction
    """The least that any ring must move if every member is to have what its weight asks for, before and after."""

    @property
    def moved(self) -> Fraction:
        """All of it, as a fraction of the hash space."""
        return sum(self.flows.values(), Fraction(0))


def movement(old: HashRing, new: HashRing) -> Movement:
    """The movement when *new* replaces *old*.

    Cost:   O(tokens of both).
    Raises: EmptyRingError if either ring has no member: then nothing moves, everything has or loses its owner.
    """
    _check_members(old, new)
    sizes: Counter[tuple[str, str]] = Counter()
    done = -1  # the last position that is counted
    for end, before, after in _joint_arcs(old, new):
        if before != after:
            sizes[before, after] += end - done
        done = end
    flows = {pair: Fraction(size, HASH_SPACE) for pair, size in sorted(sizes.items())}
    return Movement(MappingProxyType(flows), _ideal(old, new))


class Transition:
    """Owners before and after of many keys: one look-up for both, in two fifths of the time that two take.

    Shape:  20 bytes per arc of both rings.
    Raises: EmptyRingError if either ring has no member.
    """

    __slots__ = ("_ends", "_owners", "_page_shift", "_pages")

    def __init__(self, old: HashRing, new: HashRing) -> None:
        _check_members(old, new)
        known: dict[tuple[str, str], tuple[str, str]] = {}
        self._ends = array("Q")
        self._owners: list[tuple[str, str]] = []
        for end, before, after in _joint_arcs(old, new):
            self._ends.append(end)
            self._owners.append(known.setdefault((before, after), (before, after)))
        self._pages, self._page_shift = page_index(self._ends)

    def owners(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        """(owner before, owner after) of each of *keys*, in their order."""
        ends, owners, pages, shift = self._ends, self._owners, self._pages, self._page_shift
        return [
            owners[bisect_left(ends, position, pages[page := position >> shift], pages[page + 1])]
            for position in hash_keys(keys)
        ]


def _joint_arcs(old: HashRing, new: HashRing) -> Iterator[tuple[int, str, str]]:
    """Every piece of the hash space with one owner before and one after, as (end, before, after), in order."""
    old_arcs, new_arcs = old.arcs(), new.arcs()
    (old_end, old_owner), (new_end, new_owner) = next(old_arcs), next(new_arcs)
    while True:
        end = min(old_end, new_end)
        yield end, old_owner, new_owner
        if end == HASH_SPACE - 1:
            return
        if old_end == end:
            old_end, old_owner = next(old_arcs)
        if new_end == end:
            new_end, new_owner = next(new_arcs)


def _ideal(old: HashRing, new: HashRing) -> Fraction:
    before = old.fair_shares()
    gains = (share - before.get(member, Fraction(0)) for member, share in new.fair_shares().items())
    return sum((gain for gain in gains if gain > 0), Fraction(0))


def _check_members(old: HashRing, new: HashRing) -> None:
    for name, ring in (("old", old), ("new", new)):
        if not len(ring):
            raise EmptyRingError(f"movement with an empty {name} ring")
