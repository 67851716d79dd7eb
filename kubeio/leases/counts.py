"""Counts of a shard's objects in its Lease: `websites.example.com=33102,configmaps=33102`. Pure.

For people: no decision reads them. The shard writes them, `ringleader status` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping


def write_counts(counts: Mapping[str, int]) -> str:
    """*counts* by `plural.group`, sorted."""
    return ",".join(f"{name}={number}" for name, number in sorted(counts.items()))


def read_counts(text: str) -> dict[str, int] | None:
    """Counts by `plural.group`; None unless *text* consists of them: anybody may write a Lease."""
    found = {}
    for each in text.split(","):
        name, _, number = each.partition("=")
        if not (name and number.isascii() and number.isdigit() and len(number) <= 12):
            return None
        found[name] = int(number)
    return found
