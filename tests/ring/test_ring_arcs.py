"""Bounded arcs on tokens chosen by hand and by hypothesis, against a walk without any short cut."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring.arcs import bound_arcs, longest_that_fits
from ring.hashing import HASH_SPACE
from ring.tokens import TokenTable

LAST = HASH_SPACE - 1
QUARTER = HASH_SPACE // 4


def table(*tokens: tuple[int, int]) -> TokenTable:
    ordered = sorted(tokens)
    return TokenTable(array("Q", [p for p, _ in ordered]), array("I", [m for _, m in ordered]))


def plain_walk(tokens: TokenTable, capacities: list[int]) -> list[tuple[int, int]]:
    """Rows (end, owner) by docs/ring.md, step by step."""
    points, members = tokens
    count = len(points)
    lengths = [points[j] - points[j - 1] + (HASH_SPACE if j == 0 else 0) for j in range(count)]
    limits = []
    rooms = []
    for member, capacity in enumerate(capacities):
        own = sorted(length for length, m in zip(lengths, members, strict=True) if m == member)
        limits.append(HASH_SPACE)
        rooms.append(capacity - sum(own))
        if sum(own) > capacity:
            limits[member] = slow_limit(own, capacity)
            rooms[member] = 0
    pieces: list[tuple[int, int, int]] = []  # end (may be negative), size, owner
    for j in range(count):
        kept = min(lengths[j], limits[members[j]])
        pieces.append((points[j], kept, members[j]))
        end, rest, at = points[j] - kept, lengths[j] - kept, j
        while rest:
            at = (at + 1) % count
            taken = min(rest, rooms[members[at]])
            rooms[members[at]] -= taken
            pieces.append((end, taken, members[at]))
            end, rest = end - taken, rest - taken
    rows = []
    for end, size, owner in pieces:
        if size and end >= 0:
            rows.append((end, owner))
        if size and end - size < -1:
            rows.append((min(end, -1) + HASH_SPACE, owner))
    return sorted(rows)


def slow_limit(lengths: list[int], capacity: int) -> int:
    """The largest limit that fits, by bisection on the limit itself."""
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(length, middle) for length in lengths) <= capacity:
            low = middle
        else:
            high = middle - 1
    return low


@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=30), st.data())
def test_the_limit_is_the_largest_that_fits(lengths: list[int], data: st.DataObject) -> None:
    capacity = data.draw(st.integers(len(lengths), max(len(lengths), sum(lengths))))
    assert longest_that_fits(sorted(lengths), capacity) == slow_limit(lengths, capacity)


POINTS = st.one_of(
    st.integers(0, LAST),
    st.sampled_from([0, 1, LAST - 1, LAST, QUARTER]),
    st.integers(0, 20),
    st.integers(LAST - 20, LAST),
)


@st.composite
def arc_problems(draw: st.DrawFn) -> tuple[TokenTable, list[int]]:
    members = draw(st.integers(1, 6))
    points = draw(st.lists(POINTS, min_size=members, max_size=40, unique=True))
    owners = [*range(members), *(draw(st.integers(0, members - 1)) for _ in points[members:])]
    parts = [draw(st.integers(1, 5)) for _ in range(members)]
    slack = draw(st.sampled_from([10**13, QUARTER // 3, HASH_SPACE]))
    capacities = [(HASH_SPACE + slack) * part // sum(parts) for part in parts]
    return table(*zip(points, owners, strict=True)), capacities


@given(arc_problems())
def test_arcs_agree_with_a_walk_without_short_cuts(problem: tuple[TokenTable, list[int]]) -> None:
    tokens, capacities = problem
    arcs = bound_arcs(tokens, capacities)
    assert list(zip(arcs.ends, arcs.owners, strict=True)) == plain_walk(tokens, capacities)


@given(arc_problems())
def test_rows_cover_the_space_and_sizes_keep_the_capacities(problem: tuple[TokenTable, list[int]]) -> None:
    tokens, capacities = problem
    arcs = bound_arcs(tokens, capacities)
    owned = [0] * len(capacities)
    before = -1
    for end, owner in zip(arcs.ends, arcs.owners, strict=True):
        assert end > before
        owned[owner] += end - before
        before = end
    assert before == LAST
    assert owned == list(arcs.sizes)
    assert sum(owned) == HASH_SPACE
    assert all(size <= capacity for size, capacity in zip(owned, capacities, strict=True))


@given(arc_problems(), POINTS)
def test_the_paged_lookup_finds_the_first_row_at_or_after_a_position(
    problem: tuple[TokenTable, list[int]], position: int
) -> None:
    arcs = bound_arcs(*problem)
    assert arcs.row(position) == next(row for row, end in enumerate(arcs.ends) if end >= position)


def test_a_position_belongs_to_the_token_it_equals_and_the_end_wraps_to_the_first() -> None:
    arcs = bound_arcs(table((QUARTER, 0), (3 * QUARTER, 1)), [HASH_SPACE, HASH_SPACE])
    owner = {
        position: arcs.owners[arcs.row(position)] for position in (0, QUARTER, QUARTER + 1, 3 * QUARTER, LAST)
    }
    assert owner == {0: 0, QUARTER: 0, QUARTER + 1: 1, 3 * QUARTER: 1, LAST: 0}


def test_of_a_tie_the_first_member_has_the_arc_and_the_second_nothing() -> None:
    arcs = bound_arcs(table((QUARTER, 1), (QUARTER, 0), (LAST, 2)), [HASH_SPACE] * 3)
    assert arcs.owners[arcs.row(QUARTER)] == 0
    assert arcs.sizes[1] == 0


def test_the_longest_arc_gives_and_keeps_the_part_next_to_its_token() -> None:
    # member 0 has arcs of 2 and 1 quarters and may have 2: the longer one is cut to 1
    tokens = table((2 * QUARTER - 1, 0), (3 * QUARTER - 1, 0), (LAST, 1))
    arcs = bound_arcs(tokens, [2 * QUARTER, 3 * QUARTER])
    assert list(arcs.sizes) == [2 * QUARTER, 2 * QUARTER]
    assert arcs.owners[arcs.row(0)] == 1
    assert arcs.owners[arcs.row(QUARTER - 1)] == 1
    assert arcs.owners[arcs.row(QUARTER)] == 0


@pytest.mark.parametrize("over", [0, 1, 2])
def test_a_piece_that_ends_near_the_start_of_the_space_wraps_exactly(over: int) -> None:
    # the first arc, of 2 quarters, keeps 1: what it passes on ends at position over - 1
    first = QUARTER + over - 1
    tokens = table((first, 0), (first + 2 * QUARTER, 1))
    arcs = bound_arcs(tokens, [QUARTER, HASH_SPACE])
    rows = list(zip(arcs.ends, arcs.owners, strict=True))
    head = [(over - 1, 1)] if over else []
    assert rows == [*head, (first, 0), (first + 2 * QUARTER, 1), (LAST, 1)]


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_piece_reaches_over_the_start_of_the_space_by_few_positions(size: int) -> None:
    # member 0's first arc keeps all but `size + 1` positions, which end at position 0
    tokens = table((QUARTER, 0), (LAST - size, 1))
    arcs = bound_arcs(tokens, [QUARTER, HASH_SPACE])
    rows = list(zip(arcs.ends, arcs.owners, strict=True))
    tail = [(LAST, 1)] if size else []
    assert rows == [(0, 1), (QUARTER, 0), (LAST - size, 1), *tail]
