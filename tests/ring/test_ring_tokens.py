"""Tokens of all members in one table, however many there are, and rings that share them."""

from __future__ import annotations

from array import array

import pytest

from ring.arcs import bound_arcs
from ring.hashing import HASH_SPACE
from ring.ring import HashRing
from ring.tokens import GONE, inserted, member_tokens, merge_tokens, renumbered


@pytest.mark.parametrize("tokens_at_once", [1, 7, 100, 10_000])
def test_tokens_merged_in_slices_are_those_merged_at_once(
    tokens_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [member_tokens(name, 50) for name in ("a", "b", "c")]
    whole = sorted((point, index) for index, points in enumerate(tokens) for point in points)
    monkeypatch.setattr("ring.tokens._SLICE", tokens_at_once)
    merged = merge_tokens(dict(enumerate(tokens)))
    assert list(zip(merged.points, merged.members, strict=True)) == whole


@pytest.mark.parametrize("tokens_at_once", [7, 10_000])
@pytest.mark.parametrize("virtual_nodes", [10, 100])
def test_a_ring_made_like_another_is_what_it_would_be_anyhow(
    virtual_nodes: int, tokens_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members leave, join before the others and after them, and weigh more; some arcs of *like* are passed on."""
    monkeypatch.setattr("ring.tokens._SLICE", tokens_at_once)
    members = {"0": 1, "a": 1, "b": 2, "d": 1}
    like = HashRing(["a", "b", "c"], virtual_nodes=100)
    ring = HashRing(members, virtual_nodes=virtual_nodes, like=like)
    assert list(ring.arcs()) == list(HashRing(members, virtual_nodes=virtual_nodes).arcs())


def test_the_tokens_of_a_ring_are_read_from_its_arcs() -> None:
    tokens = {index: member_tokens(name, 50) for index, name in enumerate(("a", "b", "c"))}
    table = merge_tokens(tokens)
    arcs = bound_arcs(table, [HASH_SPACE * 21 // 60] * 3)
    assert arcs.cuts
    assert arcs.tokens() == table


def test_tokens_are_inserted_in_order_and_ties_in_order_of_the_members() -> None:
    table = merge_tokens({0: array("Q", [5, 9]), 2: array("Q", [5, 7])})
    new = merge_tokens({1: array("Q", [5, 5, 6, 11]), 3: array("Q", [0, 5])})
    both = inserted(table, new)
    assert list(zip(both.points, both.members, strict=True)) == sorted(
        [(5, 0), (9, 0), (5, 2), (7, 2), (5, 1), (5, 1), (6, 1), (11, 1), (0, 3), (5, 3)]
    )


def test_the_tokens_of_members_that_are_gone_are_left_out() -> None:
    table = merge_tokens({0: array("Q", [5, 9]), 1: array("Q", [6]), 2: array("Q", [5, 7])})
    kept = renumbered(table, [3, GONE, 4])
    assert list(zip(kept.points, kept.members, strict=True)) == [(5, 3), (5, 4), (7, 4), (9, 3)]
