"""Writes owners-v1.json, the golden owners of algorithm v1: `python tests/ring/golden/make_owners.py FILE`.

The committed file is frozen: it is the promise that a new version of the sharder moves nothing. Tests recompute
it; this script exists for the record, and for the file of a future algorithm beside it.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path

from ring import ALGORITHM, HashRing, hash_key
from ring.hashing import hash_virtual_nodes, virtual_node_bytes

KEYS = 10_000
FORMAT = [
    "Key number i, from 0 to 9999, is the text 'example.com_ns-<i mod 97>_site-<i>' (decimal numbers).",
    "hashes: unsigned 64-bit hash, 16 hex digits, of some texts.",
    "virtual_nodes: of member and index, the framed bytes in hex, and their hash.",
    "rings: weights, eps are decimals as text; members in order of their UTF-8 bytes (weight 0: no place).",
    "owners: two hex digits for each key in order: index of the owner in the list of the ring's members.",
    "sizes: positions of the hash space that each member owns, decimal text, in the order of the members.",
]
TEXTS = [
    "",
    "a",
    "example.com_default_site",
    "_default_settings",
    "example.com__cluster-wide",
    "größe",
    "環",
    "🐍" * 7,
]


def members(prefix: str, count: int) -> dict[str, str]:
    return {f"{prefix}{index}": "1" for index in range(count)}


RINGS: list[tuple[str, dict[str, str], int, str]] = [
    ("one member", members("web-", 1), 1000, "0.05"),
    ("three members", members("web-", 3), 1000, "0.05"),
    ("ten members", members("web-", 10), 1000, "0.05"),
    ("a hundred members", members("web-", 100), 1000, "0.05"),
    ("weights", {"a": "0.5", "b": "1", "c": "2", "d": "3.25", "e": "0", "f": "0.001"}, 1000, "0.05"),
    ("nearly no slack", members("shard-", 30), 100, "0.000001"),
    ("two members, one virtual node each", members("n", 2), 1, "0.05"),
    ("seven members, three virtual nodes each", members("n", 7), 3, "0.01"),
    (
        "names that are not plain",
        {"ä": "1", "環": "1", "a_b": "1", "a/b": "1", "ﬁ": "1", "🐍": "1"},
        200,
        "0.1",
    ),
]


def key(index: int) -> str:
    return f"example.com_ns-{index % 97}_site-{index}"


def golden_ring(what: str, weights: dict[str, str], virtual_nodes: int, eps: str) -> dict[str, object]:
    decimals = {name: Decimal(weight) for name, weight in weights.items()}
    ring = HashRing(decimals, virtual_nodes=virtual_nodes, eps=Decimal(eps))
    number = {name: index for index, name in enumerate(ring.members)}
    owners = ring.owners(key(index) for index in range(KEYS))
    return {
        "what": what,
        "virtual_nodes": virtual_nodes,
        "eps": eps,
        "weights": weights,
        "members": list(ring.members),
        "sizes": [str(size) for size in ring.sizes().values()],
        "owners": "".join(f"{number[owner]:02x}" for owner in owners),
    }


def golden() -> dict[str, object]:
    return {
        "algorithm": ALGORITHM,
        "format": FORMAT,
        "hashes": {text: f"{hash_key(text):016x}" for text in TEXTS},
        "virtual_nodes": [
            [
                name,
                index,
                virtual_node_bytes(name, index).hex(),
                f"{hash_virtual_nodes(name, index + 1)[-1]:016x}",
            ]
            for name, index in [("web-1", 0), ("web-1", 11), ("web-11", 1), ("環", 999)]
        ],
        "rings": [golden_ring(*ring) for ring in RINGS],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(golden(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
