"""The hash and the framed bytes of virtual nodes."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from ring import HASH_SPACE, hash_key, hash_keys, object_key
from ring.hashing import hash_bytes, hash_virtual_nodes, virtual_node_bytes
from ring.tokens import member_tokens, merge_tokens, token_count

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
INDICES = st.integers(0, 100_000)


def murmur3_x64_128_first_half(data: bytes) -> int:
    """Written from the published description of MurmurHash3, seed 0; the library must agree."""
    mask = HASH_SPACE - 1
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotate(value: int, by: int) -> int:
        return ((value << by) | (value >> (64 - by))) & mask

    def scramble(value: int, first: int, by: int, second: int) -> int:
        return rotate(value * first & mask, by) * second & mask

    def finish(value: int) -> int:
        value ^= value >> 33
        value = value * 0xFF51AFD7ED558CCD & mask
        value ^= value >> 33
        value = value * 0xC4CEB9FE1A85EC53 & mask
        return value ^ (value >> 33)

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= scramble(k1, c1, 31, c2)
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & mask
        h2 ^= scramble(k2, c2, 33, c1)
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & mask
    tail = data[whole:]
    h2 ^= scramble(int.from_bytes(tail[8:], "little"), c2, 33, c1)
    h1 ^= scramble(int.from_bytes(tail[:8], "little"), c1, 31, c2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & mask
    h2 = (h2 + h1) & mask
    return (finish(h1) + finish(h2)) & mask


@given(st.binary(max_size=70))
def test_hash_is_the_first_half_of_murmur3_x64_128_unsigned(data: bytes) -> None:
    assert hash_bytes(data) == murmur3_x64_128_first_half(data)


@given(st.lists(NAMES, max_size=20))
def test_keys_in_bulk_hash_like_single_keys_by_their_utf8_bytes(keys: list[str]) -> None:
    assert hash_keys(keys) == [hash_key(key) for key in keys] == [hash_bytes(key.encode()) for key in keys]


def test_a_hash_above_two_to_the_63_stays_positive() -> None:
    assert hash_key("a") == 0x85555565F6597889


@given(NAMES, INDICES, NAMES, INDICES)
@example("web-1", 11, "web-11", 1)
@example("a", 0x62, "a\0\0\0b", 0)
@example("\0", 0, "\0\0", 0)
def test_no_two_virtual_nodes_give_the_same_bytes(a: str, i: int, b: str, j: int) -> None:
    assume((a, i) != (b, j))
    assert virtual_node_bytes(a, i) != virtual_node_bytes(b, j)


@given(NAMES, st.integers(1, 50))
def test_virtual_nodes_in_bulk_hash_their_framed_bytes(member: str, count: int) -> None:
    expected = [hash_bytes(virtual_node_bytes(member, index)) for index in range(count)]
    assert hash_virtual_nodes(member, count) == expected
    assert list(member_tokens(member, count)) == sorted(expected)


def test_tokens_follow_the_weight_and_are_at_least_one() -> None:
    counts = {units: token_count(units, 10) for units in (1, 49, 50, 149, 150, 1000, 3250)}
    assert counts == {1: 1, 49: 1, 50: 1, 149: 1, 150: 2, 1000: 10, 3250: 33}


def test_tied_tokens_stand_in_order_of_their_members() -> None:
    a, b, c = (member_tokens("same", 3) for _ in range(3))
    table = merge_tokens({0: a, 1: b, 2: c})
    assert list(table.members) == [0, 1, 2] * 3
    assert list(table.points) == sorted([*a, *b, *c])


def test_object_key_keeps_empty_group_and_namespace_apart() -> None:
    assert object_key("example.com", "prod", "shop") == "example.com_prod_shop"
    assert object_key("", "prod", "shop") == "_prod_shop"
    assert object_key("example.com", "", "shop") == "example.com__shop"
