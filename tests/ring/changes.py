"""Rings made from others, as the sharder makes them: tokens of members that stay are taken over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ring import HashRing, Transition
from ring.values import Number


def changed(ring: HashRing, weights: Mapping[str, Number]) -> HashRing:
    """*ring* with other *weights*; 0 takes a member off."""
    return HashRing({**ring.weights, **weights}, virtual_nodes=ring.virtual_nodes, eps=ring.eps, like=ring)


def moved_keys(old: HashRing, new: HashRing, keys: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Owners before and after of those of *keys* that move."""
    known = list(keys)
    pairs = zip(known, Transition(old, new).owners(known), strict=True)
    return {key: pair for key, pair in pairs if pair[0] != pair[1]}
