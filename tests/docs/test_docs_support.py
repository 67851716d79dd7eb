"""The support matrix and the page of the days after: every row says whether it is tested, and by what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROOF = re.compile(r"`(test_\w+\.py|make [a-z-]+.*?|tests/\w+)`")
"""A test, a folder of tests or a target; tests/docs/test_docs_names.py looks whether they exist."""
CLAIM = re.compile(r"(?<!not )(?<!Not )\btested\b")


def rows_of(text: str) -> Iterator[list[str]]:
    """Cells of each row of the tables in *text*."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("|--"):
            bare = re.sub(r"\]\([^)]*\)", "]", line).strip("|").replace("\\|", "/")
            yield [cell.strip() for cell in bare.split("|")]


@pytest.mark.parametrize("name", ["support.md", "day2.md"])
def test_what_is_called_tested_names_its_test(name: str) -> None:
    rows = list(rows_of((DOCS / name).read_text()))
    assert len(rows) > 15
    unproved = [row[0] for row in rows if CLAIM.search(" ".join(row[1:])) and not PROOF.search(" ".join(row))]
    assert not unproved


def test_every_row_of_the_support_matrix_says_its_state() -> None:
    words = re.compile(r"tested|refused|only|marked")
    rows = list(rows_of((DOCS / "support.md").read_text()))[1:]
    assert not [row[0] for row in rows if not words.search(" ".join(row[1:]))]


def test_a_claim_without_a_test_is_noticed() -> None:
    assert CLAIM.search("tested daily")
    assert not CLAIM.search("not tested; may work")
    assert not PROOF.search("by hand")
