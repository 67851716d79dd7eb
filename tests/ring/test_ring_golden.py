"""Algorithm v1 is frozen: the owners of 10,000 keys on each golden ring are recomputed.

If this fails, objects would move when the sharder is upgraded. Do not regenerate the file: make a new algorithm.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

import pytest

from ring import ALGORITHM, HashRing, hash_key
from ring.hashing import hash_virtual_nodes, virtual_node_bytes


class GoldenRing(TypedDict):
    what: str
    virtual_nodes: int
    eps: str
    weights: dict[str, str]
    members: list[str]
    sizes: list[str]
    owners: str


class Golden(TypedDict):
    algorithm: str
    hashes: dict[str, str]
    virtual_nodes: list[tuple[str, int, str, str]]
    rings: list[GoldenRing]


FILE = Path(__file__).parent / "golden" / "owners-v1.json"
GOLDEN: Golden = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_golden_file_is_the_one_that_was_frozen() -> None:
    assert (
        hashlib.sha256(FILE.read_bytes()).hexdigest()
        == "4125d68d77128fd1992d693e5cde1f391662c3dff97803092936a4c79b53bf53"
    )
    assert GOLDEN["algorithm"] == ALGORITHM == "v1"


def test_golden_hashes_of_keys() -> None:
    assert {text: f"{hash_key(text):016x}" for text in GOLDEN["hashes"]} == GOLDEN["hashes"]


def test_golden_bytes_and_hashes_of_virtual_nodes() -> None:
    for name, index, framed, expected in GOLDEN["virtual_nodes"]:
        assert virtual_node_bytes(name, index).hex() == framed
        assert f"{hash_virtual_nodes(name, index + 1)[index]:016x}" == expected


@pytest.mark.parametrize("golden", GOLDEN["rings"], ids=lambda golden: golden["what"])
def test_golden_owners_of_ten_thousand_keys(golden: GoldenRing) -> None:
    weights = {name: Decimal(weight) for name, weight in golden["weights"].items()}
    ring = HashRing(weights, virtual_nodes=golden["virtual_nodes"], eps=Decimal(golden["eps"]))
    assert list(ring.members) == golden["members"]
    assert [str(size) for size in ring.sizes().values()] == golden["sizes"]
    keys = [f"example.com_ns-{index % 97}_site-{index}" for index in range(10_000)]
    numbers = bytes.fromhex(golden["owners"])
    assert ring.owners(keys) == [golden["members"][number] for number in numbers]
