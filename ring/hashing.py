"""Positions in the hash space: of keys, and of the virtual nodes of members (algorithm v1, docs/ring.md).

Owns the hash and the bytes that go into it. Knows neither rings nor owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mmh3 import mmh3_x64_128_utupledigest as _murmur3

HASH_SPACE: Final = 2**64
"""Number of positions: every hash is an int from 0 to HASH_SPACE - 1."""

_LENGTH_BYTES: Final = 4


def hash_bytes(data: bytes) -> int:
    """First 64 bits of murmur3 (x64, 128 bits, seed 0) of *data*, unsigned."""
    return _murmur3(data)[0]


def hash_key(key: str) -> int:
    """Position of *key*: the hash of its UTF-8 bytes."""
    return _murmur3(key.encode())[0]


def hash_keys(keys: Iterable[str]) -> list[int]:
    """`hash_key` of each of *keys*, in their order."""
    murmur3 = _murmur3
    return [murmur3(key.encode())[0] for key in keys]


def virtual_node_bytes(member: str, index: int) -> bytes:
    """The bytes that place virtual node *index* of *member*: length of the name, name, index.

    Framed, because names are free: with plain `name + index`, node 11 of `web-1` and node 1 of `web-11` are one.
    """
    return _frame(member) + index.to_bytes(_LENGTH_BYTES, "big")


def hash_virtual_nodes(member: str, count: int) -> list[int]:
    """Positions of the virtual nodes 0 to *count* - 1 of *member*, in this order."""
    murmur3, frame = _murmur3, _frame(member)
    return [murmur3(frame + index.to_bytes(_LENGTH_BYTES, "big"))[0] for index in range(count)]


def _frame(member: str) -> bytes:
    name = member.encode()
    return len(name).to_bytes(_LENGTH_BYTES, "big") + name
