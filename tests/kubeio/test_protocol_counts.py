"""Counts in a Lease's annotation: what is written is read, and what others wrote there is no count."""

from __future__ import annotations

import pytest

from kubeio.protocol import read_counts, write_counts


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"websites.example.com": 33_102, "configmaps": 0}, "configmaps=0,websites.example.com=33102"),
        ({"configmaps": 7}, "configmaps=7"),
    ],
)
def test_what_is_written_is_read(counts: dict[str, int], text: str) -> None:
    assert write_counts(counts) == text
    assert read_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["", "websites", "websites=", "=3", "websites=-1", "a=1,", "a=1e9", "a=²", f"a={'9' * 13}"]
)
def test_anything_else_is_no_count(text: str) -> None:
    assert read_counts(text) is None
