"""Tokens: the points of the ring at which the virtual nodes of its members stand.

Owns how many tokens a member has, where they are and how those of all members are put in order. Who owns the
arc before a token is decided in `arcs`. Called by `ring`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ring.hashing import HASH_SPACE, hash_virtual_nodes

WEIGHT_UNIT: Final = 1000
"""Weights are counted in thousandths, so that every language computes the same ring with integers."""

_INDEX_BITS: Final = 24  # more members than `values` lets tokens be
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1
_SLICE: Final = 100_000
"""Tokens that are merged at once, about."""


class TokenTable(NamedTuple):
    """All tokens in ascending order, and beside each the index of the member whose token it is.

    Arrays: 12 bytes per token, where a list of pairs takes 100.
    """

    points: array[int]
    members: array[int]


def token_count(weight_units: int, virtual_nodes: int) -> int:
    """Tokens of a member of this weight: in proportion, rounded half up, at least one."""
    return max(1, (virtual_nodes * weight_units + WEIGHT_UNIT // 2) // WEIGHT_UNIT)


def member_tokens(member: str, count: int) -> array[int]:
    """The first *count* tokens of *member*, in ascending order."""
    return array("Q", sorted(hash_virtual_nodes(member, count)))


class Kept(NamedTuple):
    """A table of another ring, some of whose tokens stay."""

    table: TokenTable
    indices: Sequence[int]
    """By the member's index in *table*: its index from now on, or `GONE`."""


GONE: Final = -1


def merge_tokens(tokens_by_member: Mapping[int, array[int]], kept: Kept | None = None) -> TokenTable:
    """One table of the tokens of each member, by its index, and of those *kept*; ties in order of the members.

    Point and index are packed into one int: sorting ints takes a third of the time that sorting pairs takes,
    and tokens come as sorted runs, which the sort only has to merge. Many tokens are merged in slices of the
    hash space: packed all at once, a million would take 45 MB.
    """
    points, indices = array("Q"), array("I")
    count = sum(map(len, tokens_by_member.values())) + (len(kept.table.points) if kept else 0)
    slices = 1 + count // _SLICE
    begins = dict.fromkeys(tokens_by_member, 0)
    kept_until = 0
    for number in range(1, slices + 1):
        end = HASH_SPACE * number // slices
        packed: list[int] = []
        if kept is not None:
            begin, kept_until = kept_until, bisect_left(kept.table.points, end, kept_until)
            packed += _packed(kept, begin, kept_until)
        for index, tokens in tokens_by_member.items():
            begin, begins[index] = begins[index], bisect_left(tokens, end, begins[index])
            packed += [point << _INDEX_BITS | index for point in tokens[begin : begins[index]]]
        packed.sort()
        points += array("Q", [item >> _INDEX_BITS for item in packed])
        indices += array("I", [item & _INDEX_MASK for item in packed])
    return TokenTable(points, indices)


def _packed(kept: Kept, begin: int, end: int) -> list[int]:
    """Point and new index of the tokens from *begin* to *end* that stay."""
    rows = zip(
        kept.table.points[begin:end],
        map(kept.indices.__getitem__, kept.table.members[begin:end]),
        strict=True,
    )
    return [point << _INDEX_BITS | index for point, index in rows if index != GONE]
