"""Tokens of all members in one table, however many there are, and rings that share them."""

from __future__ import annotations

import pytest

from ring.ring import HashRing
from ring.tokens import member_tokens, merge_tokens


@pytest.mark.parametrize("tokens_at_once", [1, 7, 100, 10_000])
def test_tokens_merged_in_slices_are_those_merged_at_once(
    tokens_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [member_tokens(name, 50) for name in ("a", "b", "c")]
    whole = sorted((point, index) for index, points in enumerate(tokens) for point in points)
    monkeypatch.setattr("ring.tokens._SLICE", tokens_at_once)
    merged = merge_tokens(tokens)
    assert list(zip(merged.points, merged.members, strict=True)) == whole


def test_a_ring_made_like_another_is_what_it_would_be_anyhow() -> None:
    members = {"a": 1, "b": 2, "d": 1}
    like = HashRing(["a", "b", "c"])
    for virtual_nodes in (10, 1000):
        ring = HashRing(members, virtual_nodes=virtual_nodes, like=like)
        assert list(ring.arcs()) == list(HashRing(members, virtual_nodes=virtual_nodes).arcs())
