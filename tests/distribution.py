"""Which tests go to the same worker, and in which order: what shares an expensive control plane, the longest first.

Owns groups and their order, and which tests are long; `durations.json` is its record, made anew by
`scripts/test --record`. xdist alone begins with the modules of many tests, which are the quick ones, and starts a real
API server for every module of the contract. Called by `conftest.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DURATIONS: Final = Path(__file__).with_name("durations.json")
UNKNOWN_S: Final = 30.0
"""What a group that nobody has timed yet counts as: it is begun early."""
LONG_S: Final = 2.0
"""A test of that length is left out of `make check`."""
_PLANE: Final = re.compile(r"[^\[]*\[(embedded|real)\b")
_SHARED: Final = {"tests/contract/": "tests/contract", "tests/kubeio/": "tests/kubeio"}
"""Folders whose modules share one control plane of a session."""


def group_of(nodeid: str) -> str:
    """The group of a test: its module, apart for each control plane; one for the folder where that is shared."""
    path, _, test = nodeid.partition("::")
    plane = _PLANE.match(test)
    if plane is None:
        return path
    shared = next((name for folder, name in _SHARED.items() if path.startswith(folder)), path)
    return f"{shared}[{plane[1]}]"


def longest_first(groups: Iterable[str], durations: Mapping[str, float]) -> dict[str, int]:
    """The rank of each group, beginning with 0."""
    ordered = sorted(set(groups), key=lambda group: (-durations.get(group, UNKNOWN_S), group))
    return {group: rank for rank, group in enumerate(ordered)}


@dataclass(frozen=True, slots=True)
class Record:
    """Seconds of each group, and the tests that were long, as last recorded."""

    groups: Mapping[str, float] = field(default_factory=dict)
    long: Collection[str] = ()

    def save(self) -> None:
        groups = {group: round(seconds, 1) for group, seconds in sorted(self.groups.items())}
        DURATIONS.write_text(json.dumps({"groups": groups, "long": sorted(self.long)}, indent=1) + "\n")


def recorded() -> Record:
    found = json.loads(DURATIONS.read_text())
    return Record(found["groups"], frozenset(found["long"]))


def record_of(tests: Mapping[str, float]) -> Record:
    """What is kept of the seconds of each test, by node id."""
    groups: dict[str, float] = {}
    for nodeid, seconds in tests.items():
        group = group_of(nodeid)
        groups[group] = groups.get(group, 0.0) + seconds
    return Record(groups, [nodeid for nodeid, seconds in tests.items() if seconds >= LONG_S])
