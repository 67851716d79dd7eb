"""Tokens of all members in one table, however many there are, and rings that share them."""

from __future__ import annotations

import pytest

from ring.arcs import bound_arcs
from ring.hashing import HASH_SPACE
from ring.ring import HashRing
from ring.tokens import member_tokens, merge_tokens


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
