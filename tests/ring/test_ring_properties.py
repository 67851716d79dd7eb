"""What every ring promises, whatever its members are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ring import (
    HASH_SPACE,
    EmptyRingError,
    HashRing,
    InvalidRing,
    Transition,
    hash_key,
    movement,
)
from ring.tokens import member_tokens
from tests.ring.changes import changed, moved_keys

NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.integers(0, 200).map("web-{}".format),
)
WEIGHTS = st.integers(1, 5000).map(lambda units: Decimal(units) / 1000)
MEMBERS = st.dictionaries(NAMES, WEIGHTS, min_size=1, max_size=8)
NODES = st.integers(1, 40)
EPS = st.sampled_from([0.000001, 0.01, 0.05, 0.3, 1000])
KEYS = [f"example.com_ns_{index}" for index in range(300)]


@st.composite
def rings(draw: st.DrawFn) -> HashRing:
    return HashRing(draw(MEMBERS), virtual_nodes=draw(NODES), eps=draw(EPS))


@given(MEMBERS, NODES, EPS, st.randoms())
def test_the_order_of_members_does_not_matter(
    members: dict[str, Decimal], nodes: int, eps: float, rng: object
) -> None:
    items = list(members.items())
    rng.shuffle(items)  # type: ignore[attr-defined]  # hypothesis types its Random as object
    one = HashRing(members, virtual_nodes=nodes, eps=eps)
    other = HashRing(dict(items), virtual_nodes=nodes, eps=eps)
    assert one == other
    assert hash(one) == hash(other)
    assert list(one.arcs()) == list(other.arcs())


@given(rings())
def test_every_key_has_exactly_one_owner_and_all_ways_to_ask_agree(ring: HashRing) -> None:
    owners = ring.owners(KEYS)
    assert owners == [ring.owner(key) for key in KEYS]
    assert owners == [ring.owner_of_hash(hash_key(key)) for key in KEYS]
    assert owners == [ring.explain(key).owner for key in KEYS]
    assert set(owners) <= set(ring.members)


@given(rings())
def test_sizes_sum_to_the_whole_space_and_no_share_exceeds_the_bound(ring: HashRing) -> None:
    sizes, shares, fair = ring.sizes(), ring.shares(), ring.fair_shares()
    assert sum(sizes.values()) == HASH_SPACE
    assert sum(shares.values()) == sum(fair.values()) == 1
    assert all(shares[member] <= (1 + ring.eps) * fair[member] for member in ring.members)


@given(rings())
def test_sizes_are_those_of_the_arcs(ring: HashRing) -> None:
    arcs = list(ring.arcs())
    sizes: Counter[str] = Counter()
    for (before, _), (end, owner) in pairwise([(-1, ""), *arcs]):
        sizes[owner] += end - before
    assert arcs[-1][0] == HASH_SPACE - 1
    assert {member: sizes[member] for member in ring.members} == ring.sizes()


@given(rings(), NAMES, WEIGHTS)
def test_join_and_leave_are_inverse(ring: HashRing, name: str, weight: Decimal) -> None:
    ring = changed(ring, {name: 0})
    joined = ring.with_member(name, weight)
    assert name in joined
    assert joined.weights[name] == Fraction(weight)
    left = changed(joined, {name: 0})
    assert left == ring
    assert list(left.arcs()) == list(ring.arcs())


@given(rings(), WEIGHTS, st.data())
def test_a_changed_weight_gives_the_ring_built_with_it(
    ring: HashRing, weight: Decimal, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(ring.members))
    built = HashRing({**ring.weights, name: weight}, virtual_nodes=ring.virtual_nodes, eps=ring.eps)
    made = changed(ring, {name: weight})
    assert made == built
    assert list(made.arcs()) == list(built.arcs())
    assert list(changed(made, {name: ring.weights[name]}).arcs()) == list(ring.arcs())


@given(rings(), st.data())
def test_a_member_of_weight_zero_has_no_place(ring: HashRing, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ring.members))
    others = {member: weight for member, weight in ring.weights.items() if member != name}
    assert changed(ring, {name: 0}) == HashRing(others, virtual_nodes=ring.virtual_nodes, eps=ring.eps)


@given(rings(), rings())
def test_movement_agrees_with_owners_at_every_arc_of_both_rings(old: HashRing, new: HashRing) -> None:
    ends = sorted({end for ring in (old, new) for end, _ in ring.arcs()})
    flows: Counter[tuple[str, str]] = Counter()
    for before, end in pairwise([-1, *ends]):
        pair = old.owner_of_hash(end), new.owner_of_hash(end)
        if pair[0] != pair[1]:
            flows[pair] += end - before
    result = movement(old, new)
    assert result.flows == {pair: Fraction(size, HASH_SPACE) for pair, size in flows.items()}
    assert result.moved == sum(result.flows.values())
    for member in {*old.members, *new.members}:
        gained = sum((part for (_, to), part in result.flows.items() if to == member), Fraction(0))
        lost = sum((part for (source, _), part in result.flows.items() if source == member), Fraction(0))
        assert new.shares().get(member, 0) - old.shares().get(member, 0) == gained - lost


@given(rings(), rings())
def test_a_transition_has_both_owners_of_every_key(old: HashRing, new: HashRing) -> None:
    expected = list(zip(old.owners(KEYS), new.owners(KEYS), strict=True))
    assert Transition(old, new).owners(iter(KEYS)) == expected


@pytest.mark.parametrize("rings", [(HashRing(), HashRing(["a"])), (HashRing(["a"]), HashRing())])
def test_a_transition_needs_members_before_and_after(rings: tuple[HashRing, HashRing]) -> None:
    with pytest.raises(EmptyRingError):
        Transition(*rings)


def test_movement_predicts_how_many_of_many_keys_move() -> None:
    old = HashRing([f"web-{index}" for index in range(9)])
    new = old.with_member("web-9")
    keys = [f"example.com_ns_{index}" for index in range(100_000)]
    predicted = float(movement(old, new).moved)
    assert len(moved_keys(old, new, keys)) / len(keys) == pytest.approx(predicted, abs=0.004)


def test_the_ideal_movement_is_what_the_weights_ask_for() -> None:
    three = HashRing(["a", "b", "c"], virtual_nodes=10)
    assert movement(three, three).moved == movement(three, three).ideal == 0
    assert movement(three, three.with_member("d")).ideal == Fraction(1, 4)
    assert movement(three, three.with_member("d", 3)).ideal == Fraction(1, 2)
    assert movement(three, changed(three, {"a": 0})).ideal == Fraction(1, 3)
    assert movement(three, changed(three, {"a": 2})).ideal == Fraction(1, 2) - Fraction(1, 3)


@given(rings())
@settings(max_examples=50)
def test_an_explanation_names_the_token_and_the_members_passed(ring: HashRing) -> None:
    tokens = sorted(
        (token, member.encode())
        for member, weight in ring.weights.items()
        for token in member_tokens(member, max(1, int(weight * ring.virtual_nodes + Fraction(1, 2))))
    )
    for key in KEYS[:40]:
        found = ring.explain(key)
        first = next((item for item in tokens if item[0] >= hash_key(key)), tokens[0])
        assert (found.hash, found.token, found.token_member.encode()) == (hash_key(key), *first)
        at = tokens.index(first)
        clockwise = [name.decode() for _, name in tokens[at:] + tokens[:at]]
        assert list(found.passed) == list(dict.fromkeys(clockwise[: clockwise.index(found.owner)]))


def test_a_passed_member_is_nearly_full() -> None:
    ring = HashRing([f"web-{index}" for index in range(10)], eps=0.01)
    found = [ring.explain(f"example.com_ns_{index}") for index in range(5000)]
    passed = {member for item in found for member in item.passed}
    assert passed
    assert all(ring.shares()[member] > Fraction(1009, 10000) for member in passed)


def test_a_ring_without_members_owns_nothing_and_says_so() -> None:
    empty = HashRing()
    assert len(empty) == 0
    assert empty.members == ()
    assert list(empty.arcs()) == []
    assert empty.sizes() == empty.shares() == empty.fair_shares() == {}
    assert empty == changed(HashRing({"a": 1}), {"a": 0}) == HashRing({"a": 0})
    for ask in (lambda: empty.owner("k"), lambda: empty.owners([]), lambda: empty.explain("k")):
        with pytest.raises(EmptyRingError, match="no member"):
            ask()
    with pytest.raises(EmptyRingError, match="empty new ring"):
        movement(HashRing(["a"]), empty)
    with pytest.raises(EmptyRingError, match="empty old ring"):
        movement(empty, HashRing(["a"]))


def test_a_ring_does_not_change_when_its_input_does() -> None:
    weights: dict[str, int] = {"a": 1, "b": 1}
    ring = HashRing(weights)
    before = list(ring.arcs())
    weights["c"] = 1
    ring.weights["d"] = Fraction(1)
    ring.sizes().clear()
    ring.with_member("e")
    assert ring.members == ("a", "b")
    assert list(ring.arcs()) == before


@pytest.mark.parametrize("value", [0, -0.05, 1001, 0.0000001, float("nan"), float("inf"), "0.05", True, None])
def test_an_unusable_eps_names_field_value_and_remedy(value: object) -> None:
    with pytest.raises(InvalidRing, match=r"^eps: .*0\.05") as caught:
        HashRing(["a"], eps=value)  # type: ignore[arg-type]  # what a person may write
    assert caught.value.field == "eps"
    assert caught.value.value is value
    assert caught.value.remedy


@pytest.mark.parametrize("value", [0, -1, 100_001, 1.5, "many", True, None])
def test_an_unusable_number_of_virtual_nodes_is_refused(value: object) -> None:
    with pytest.raises(InvalidRing, match=r"^virtualNodes: ") as caught:
        HashRing(["a"], virtual_nodes=value)  # type: ignore[arg-type]  # what a person may write
    assert caught.value.field == "virtualNodes"


@pytest.mark.parametrize("value", [-1, 1001, 0.0001, float("nan"), "2", True, None])
def test_an_unusable_weight_names_its_member(value: object) -> None:
    ring = HashRing(["a"], virtual_nodes=1)
    weight: Any = value  # what a person may write
    builds: list[Callable[[], HashRing]] = [
        lambda: HashRing({"x": weight}),
        lambda: ring.with_member("x", weight),
    ]
    for build in builds:
        with pytest.raises(InvalidRing) as caught:
            build()
        assert caught.value.field == "members[x].weight"


@pytest.mark.parametrize("name", ["", "\ud800", 7, None])
def test_an_unusable_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidRing, match=r"^members: "):
        HashRing([name])  # type: ignore[list-item]  # what a person may write


def test_joining_twice_is_refused() -> None:
    with pytest.raises(InvalidRing, match="already on the ring"):
        HashRing(["a"]).with_member("a")


def test_a_ring_too_large_for_memory_is_refused_before_it_is_built() -> None:
    with pytest.raises(InvalidRing, match="makes 100000000 tokens"):
        HashRing({"a": 1000}, virtual_nodes=100_000)


def test_numbers_are_read_as_the_decimals_that_are_written() -> None:
    rings = {
        HashRing({"a": 0.1, "b": 3}, eps=0.05),
        HashRing({"a": Decimal("0.1"), "b": 3.0}, eps=Decimal("0.050")),
        HashRing({"a": Fraction(1, 10), "b": 3}, eps=Fraction(1, 20)),
    }
    assert len(rings) == 1
    assert rings.pop().eps == Fraction(1, 20)
