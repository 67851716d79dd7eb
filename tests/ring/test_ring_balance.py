"""The numeric goals: balance, movement and memory at the default of 1,000 virtual nodes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from statistics import mean

import pytest

from ring import HashRing, movement
from tests.ring.changes import changed

SEEDS = 30


def names(seed: int, count: int) -> list[str]:
    return [f"ctl-{seed:x}-{index}" for index in range(count)]


def largest(ring: HashRing) -> Fraction:
    """Largest share, in units of what its member's weight asks for."""
    fair = ring.fair_shares()
    return max(share / fair[member] for member, share in ring.shares().items())


def join_ratio(count: int, seed: int) -> tuple[Fraction, Fraction]:
    """Moved over ideal when one more joins *count*, or leaves *count* + 1: the two are each other's mirror."""
    *old, new = names(seed, count + 1)
    ring = HashRing(old)
    joined = ring.with_member(new)
    there = movement(ring, joined)
    share = joined.shares()[new]
    if seed == 0:
        assert movement(joined, changed(joined, {new: 0})).moved == there.moved
    return there.moved / there.ideal, there.moved / share


@pytest.mark.parametrize("count", [3, 10, 30, 100])
def test_the_largest_share_stays_within_five_percent_of_the_mean(count: int) -> None:
    for seed in range(5 if count == 100 else SEEDS):
        assert largest(HashRing(names(seed, count))) <= Fraction(105, 100)


@pytest.mark.parametrize("count", [3, 10, 30, 100])
def test_join_and_leave_move_within_two_percent_of_the_ideal(count: int) -> None:
    ratios = [join_ratio(count, seed) for seed in range(SEEDS)]
    assert float(mean(ideal for ideal, _ in ratios)) <= 1.02
    assert float(mean(least for _, least in ratios)) <= 1.02


@pytest.mark.parametrize("count", [3, 10, 30])
def test_a_weight_doubled_moves_little_more_than_it_must(count: int) -> None:
    ratios = []
    for seed in range(10):
        ring = HashRing(names(seed, count))
        change = movement(ring, changed(ring, {ring.members[0]: 2}))
        ratios.append(float(change.moved / change.ideal))
    assert mean(ratios) <= 1.05


def test_weights_are_respected() -> None:
    weights = {"quarter": 0.25, "half": 0.5, "one": 1, "two": 2, "eight": 8}
    ring = HashRing(weights)
    fair, shares = ring.fair_shares(), ring.shares()
    for member in ring.members:
        assert 0.85 <= shares[member] / fair[member] <= 1.05


ADVERSARIAL: dict[str, Callable[[int], str]] = {
    "ordinals": "web-{}".format,
    "bare digits": "{}".format,
    "repeated digits": lambda i: "1" * (i + 1),
    "separators": lambda i: "-" * i + "_:/#\0|,"[i % 7],
    "zero bytes": lambda i: "\0" * (i + 1),
    "names that end like an index": lambda i: "a" + "\0\0\0" * (i // 10) + chr(i + 1),
    "one letter apart": lambda i: "x" * 40 + chr(0x4E00 + i),
    "emoji": lambda i: chr(0x1F600 + i) * 3,
    "composed and decomposed": lambda i: ("\u00e9" if i % 2 else "e\u0301") * (i // 2 + 1),
    "long": lambda i: "n" * 250 + str(i),
}


@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_names_do_not_upset_the_balance(kind: str) -> None:
    members = [ADVERSARIAL[kind](index) for index in range(20)]
    assert len(set(members)) == 20
    shares = HashRing(members).shares()
    assert max(shares.values()) * 20 <= Fraction(105, 100)
    assert min(shares.values()) * 20 >= Fraction(85, 100)


def test_rings_made_step_by_step_equal_the_ring_made_at_once() -> None:
    rng = random.Random(7)
    ring = HashRing(virtual_nodes=50)
    weights: dict[str, int] = {}
    for step in range(60):
        if weights and rng.random() < 0.4:
            name = rng.choice(sorted(weights))
            del weights[name]
            ring = changed(ring, {name: 0})
        else:
            name = f"m-{step}"
            weights[name] = rng.randint(1, 3)
            ring = changed(ring, {name: weights[name]})
        assert list(ring.arcs()) == list(HashRing(weights, virtual_nodes=50).arcs())


def test_a_hundred_members_take_few_megabytes() -> None:
    members = names(0, 100)
    HashRing(members[:1])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ring = HashRing(members)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ring) == 100
    assert after - before < 4_000_000


def test_the_smallest_slack_makes_shares_equal_to_six_places() -> None:
    ring = HashRing(names(1, 100), virtual_nodes=200, eps=0.000001)
    assert largest(ring) <= 1 + ring.eps
    assert min(ring.shares().values()) * 100 > Fraction(9999, 10000)
