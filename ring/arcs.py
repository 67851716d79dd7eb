"""Bounded arcs: a partition of the hash space in which no member owns more than its capacity.

The arc of a token is every position after the token before it, up to and including its own; the first token's
arc wraps round. A member whose arcs are together larger than its capacity is full: its arcs are bounded to one
length, the largest that lets them fit. Of a longer arc the part next to the token stays; the rest passes
clockwise to the next token whose member has capacity left, the arcs in ascending order of their tokens.

Integers only, so that every language gets the same arcs. The reason why the longest arcs give, and the
cost: docs/adr/0003-bounded-arcs.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count
from typing import NamedTuple

from ring.hashing import HASH_SPACE
from ring.tokens import TokenTable


class ArcTable(NamedTuple):
    """A partition of the hash space into rows: row i is every position after `ends[i - 1]` up to `ends[i]`.

    The last end is HASH_SPACE - 1, so that a look-up never wraps. A row that ends at a token belongs to the
    token's member. The *cuts* are the few others: what was passed on, and the part of the first token's arc
    that lies at the end of the space.
    """

    ends: array[int]
    owners: array[int]  # member's index
    cuts: frozenset[int]  # indices of rows
    pages: array[int]  # first row of each of 2^k equal parts of the hash space, and the last row of all
    page_shift: int  # 64 - k
    sizes: Sequence[int]  # positions owned, by member's index; their sum is HASH_SPACE

    def row(self, position: int) -> int:
        """The row in which *position* lies."""
        page = position >> self.page_shift
        return bisect_left(self.ends, position, self.pages[page], self.pages[page + 1])

    def tokens(self) -> TokenTable:
        """The tokens of which the arcs were made: the ends of all rows but the cuts."""
        points, members = array("Q"), array("I")
        begin = 0
        for cut in [*sorted(self.cuts), len(self.ends)]:
            points += self.ends[begin:cut]
            members += self.owners[begin:cut]
            begin = cut + 1
        return TokenTable(points, members)

    def token_row(self, row: int) -> int:
        """The first row, from *row* on clockwise, that ends at a token."""
        row %= len(self.ends)
        while row in self.cuts:
            row = (row + 1) % len(self.ends)
        return row


class _Piece(NamedTuple):
    """The part of an arc to pass on: *size* positions up to *end*, which is below 0 where the arc wraps."""

    token: int
    end: int
    size: int


class _Row(NamedTuple):
    end: int
    owner: int


def bound_arcs(tokens: TokenTable, capacities: Sequence[int]) -> ArcTable:
    """The arcs of *tokens*, such that no member owns more positions than its capacity.

    Shape:  one capacity per member's index, together more than HASH_SPACE + the number of tokens.
    Cost:   O(tokens); who is full is walked past, which even at an eps of 0.000001 costs less than the sort.
    """
    sizes = _own_sizes(tokens, len(capacities))
    pieces = _cut_full(tokens, capacities, sizes)
    rows = _pass_on(tokens, capacities, sizes, pieces)
    return _table(tokens, rows, _kept_of_first(tokens, pieces), sizes)


def _own_sizes(tokens: TokenTable, members: int) -> list[int]:
    sizes = [0] * members
    before = tokens.points[-1] - HASH_SPACE
    for point, member in zip(tokens.points, tokens.members, strict=True):
        sizes[member] += point - before
        before = point
    return sizes


def _cut_full(tokens: TokenTable, capacities: Sequence[int], sizes: list[int]) -> list[_Piece]:
    """Cut the arcs of every member that is over its capacity; *sizes* becomes what each keeps."""
    pieces: list[_Piece] = []
    for member, lengths in _arcs_of_full(tokens, capacities, sizes).items():
        limit = longest_that_fits(sorted(lengths.values()), capacities[member])
        cut = [
            _Piece(token, tokens.points[token] - limit, length - limit)
            for token, length in lengths.items()
            if length > limit
        ]
        sizes[member] -= sum(piece.size for piece in cut)
        pieces += cut
    return sorted(pieces)


def _arcs_of_full(
    tokens: TokenTable, capacities: Sequence[int], sizes: Sequence[int]
) -> Mapping[int, dict[int, int]]:
    """For each member over its capacity: the lengths of its arcs, by index of their token."""
    is_full = [size > capacity for size, capacity in zip(sizes, capacities, strict=True)]
    lengths: dict[int, dict[int, int]] = {member: {} for member in compress(count(), is_full)}
    if not lengths:
        return lengths
    points, members = tokens
    for token in compress(count(), map(is_full.__getitem__, members)):
        before = points[token - 1] if token else points[-1] - HASH_SPACE
        lengths[members[token]][token] = points[token] - before
    return lengths


def longest_that_fits(lengths: Sequence[int], capacity: int) -> int:
    """The largest limit such that *lengths* (ascending), each cut to the limit, sum to at most *capacity*."""
    left = capacity
    for index, length in enumerate(lengths):
        limit = left // (len(lengths) - index)
        if length > limit:
            return limit
        left -= length
    return lengths[-1]


def _pass_on(
    tokens: TokenTable, capacities: Sequence[int], sizes: list[int], pieces: Sequence[_Piece]
) -> list[_Row]:
    """Give each piece to the next clockwise with capacity left; *sizes* becomes what each owns in the end."""
    full = {tokens.members[piece.token] for piece in pieces}
    spare = [0 if i in full else capacity - sizes[i] for i, capacity in enumerate(capacities)]
    rows: list[_Row] = []
    for piece in pieces:
        token, end, size = piece
        while size:
            while not spare[tokens.members[token]]:
                token = (token + 1) % len(tokens.members)
            owner = tokens.members[token]
            taken = min(size, spare[owner])
            spare[owner] -= taken
            sizes[owner] += taken
            rows += _rows_of(end, taken, owner)
            end -= taken
            size -= taken
    return rows


def _rows_of(end: int, size: int, owner: int) -> Iterator[_Row]:
    """Rows of the *size* positions up to *end*: two where they reach over the start of the space."""
    yield _Row(end % HASH_SPACE, owner)
    if end >= 0 and size > end + 1:
        yield _Row(HASH_SPACE - 1, owner)


def _kept_of_first(tokens: TokenTable, pieces: Sequence[_Piece]) -> int:
    """Length that the first token's arc keeps."""
    length = tokens.points[0] - tokens.points[-1] + HASH_SPACE
    return length - pieces[0].size if pieces and pieces[0].token == 0 else length


def _table(tokens: TokenTable, passed: Sequence[_Row], kept_of_first: int, sizes: Sequence[int]) -> ArcTable:
    """Tokens and cut rows in one table, in ascending order of their ends."""
    cut_rows = sorted(passed)
    if kept_of_first > tokens.points[0] + 1:
        cut_rows.append(_Row(HASH_SPACE - 1, tokens.members[0]))
    ends, owners, cuts = array("Q"), array("I"), []
    done = 0
    for row in cut_rows:
        here = bisect_left(tokens.points, row.end, done)
        ends += tokens.points[done:here]
        owners += tokens.members[done:here]
        cuts.append(len(ends))
        ends.append(row.end)
        owners.append(row.owner)
        done = here
    ends += tokens.points[done:]
    owners += tokens.members[done:]
    pages, page_shift = page_index(ends)
    return ArcTable(ends, owners, frozenset(cuts), pages, page_shift, sizes)


def page_index(ends: array[int]) -> tuple[array[int], int]:
    """An index of about one entry per 16 to 32 rows: it halves a look-up for 16 KB at 100,000 rows."""
    bits = max(0, len(ends).bit_length() - 5)
    shift = HASH_SPACE.bit_length() - 1 - bits
    starts = [bisect_left(ends, page << shift) for page in range(1 << bits)]
    return array("I", [*starts, len(ends) - 1]), shift
