"""Tokens: the points of the ring at which the virtual nodes of its members stand.

Owns the number of tokens of a member, their positions, and the merged order of all members' tokens. `arcs` decides
the owner of the arc before a token.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import compress
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


GONE: Final = -1


def merge_tokens(tokens_by_member: Mapping[int, array[int]]) -> TokenTable:
    """One table of the tokens of each member, by its index; ties in order of the members.

    Point and index are packed into one int: sorting ints takes a third of the time that sorting pairs takes,
    and the members' tokens come as sorted runs, which the sort only has to merge. Many tokens are merged in slices
    of the hash space: packed all at once, a million would take 45 MB.
    """
    points, indices = array("Q"), array("I")
    slices = 1 + sum(map(len, tokens_by_member.values())) // _SLICE
    begins = dict.fromkeys(tokens_by_member, 0)
    for number in range(1, slices + 1):
        end = HASH_SPACE * number // slices
        packed: list[int] = []
        for index, tokens in tokens_by_member.items():
            begin, begins[index] = begins[index], bisect_left(tokens, end, begins[index])
            packed += [point << _INDEX_BITS | index for point in tokens[begin : begins[index]]]
        packed.sort()
        points += array("Q", [item >> _INDEX_BITS for item in packed])
        indices += array("I", [item & _INDEX_MASK for item in packed])
    return TokenTable(points, indices)


def renumbered(table: TokenTable, indices: Sequence[int]) -> TokenTable:
    """*table* with *indices* of its members, by what they were; without the tokens of members that are `GONE`."""
    if GONE in indices:
        stays = [index != GONE for index in indices]
        mask = bytearray(map(stays.__getitem__, table.members))
        table = TokenTable(
            array("Q", compress(table.points, mask)), array("I", compress(table.members, mask))
        )
    return TokenTable(table.points, array("I", map(indices.__getitem__, table.members)))


def inserted(table: TokenTable, new: TokenTable) -> TokenTable:
    """Both in one table; cost: a copy of *table*, and a search for each token of *new*."""
    points, members, done = array("Q"), array("I"), 0
    old_points, old_members = table
    for point, member in zip(new.points, new.members, strict=True):
        here = bisect_left(old_points, point, done)
        while here < len(old_points) and old_points[here] == point and old_members[here] < member:
            here += 1
        points += old_points[done:here]
        members += old_members[done:here]
        points.append(point)
        members.append(member)
        done = here
    points += old_points[done:]
    members += old_members[done:]
    return TokenTable(points, members)
