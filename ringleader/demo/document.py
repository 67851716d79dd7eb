"""What a demo proves, as one JSON document, and the rule of its exit code. Pure.

Owns the names of the fields: other programs read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ringleader.testing.evidence import Evidence

What = Literal["kill", "freeze", "join", "roll", "leader_kill"]


class Event(msgspec.Struct, frozen=True):
    """A fault or a change that the demo made. *moved*: objects whose member changed; *ideal*: how many had to;
    *renamed*: objects that only changed to another shard of their member."""

    what: What
    took_s: float
    moved: int
    ideal: int
    renamed: int


class Document(msgspec.Struct, frozen=True):
    """The outcome of one demo."""

    objects: int
    updates: int
    owners: dict[str, int]
    unowned: int
    stale: int
    overlaps: int
    foreign_writes: int
    refused_writes: int
    max_unattended_s: float
    reconciles: int
    events: list[Event]


def document(
    evidence: Evidence,
    *,
    owners: Mapping[str, str],
    live: Mapping[str, str],
    stale: Sequence[str],
    updates: int,
    events: Sequence[Event],
) -> Document:
    """The document of *evidence*; *owners*: by object, as read last; *live*: the member of each live shard."""
    counted = Counter(owner for owner in owners.values() if owner in live)
    longest = evidence.longest_unattended
    return Document(
        objects=len(owners),
        updates=updates,
        owners=dict(sorted(counted.items())),
        unowned=len(owners) - counted.total(),
        stale=len(stale),
        overlaps=len(evidence.overlaps),
        foreign_writes=len(evidence.foreign_writes),
        refused_writes=len(evidence.refused_writes),
        max_unattended_s=round(longest.length_s, 3) if longest else 0.0,
        reconciles=evidence.reconciles,
        events=list(events),
    )


def faults(shown: Document) -> list[str]:
    """Reasons why the demo failed; empty if it proved every claim."""
    found = [
        (shown.unowned, f"{shown.unowned} objects have no living owner"),
        (shown.stale, f"{shown.stale} objects are not up to date"),
        (shown.overlaps, f"{shown.overlaps} times two replicas reconciled one object at once"),
        (
            shown.foreign_writes,
            f"{shown.foreign_writes} writes of replicas to objects that were not theirs were accepted",
        ),
        (shown.refused_writes < 1, "no write was refused, so the fence was not tested"),
    ]
    return [reason for wrong, reason in found if wrong]
