"""Which tests go to the same worker, and in which order: what shares an expensive control plane, the longest first.

Owns groups and their order; `durations.json` is its record, made anew by `scripts/test --record`. xdist alone
begins with the modules of many tests, which are the quick ones, and starts a real API server for every module of
the contract. Called by `conftest.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

DURATIONS: Final = Path(__file__).with_name("durations.json")
UNKNOWN_S: Final = 30.0
"""What a group that nobody has timed yet counts as: it is begun early."""
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


def recorded() -> dict[str, float]:
    """Seconds of each group, as last recorded."""
    durations: dict[str, float] = json.loads(DURATIONS.read_text())
    return durations


def record(durations: Mapping[str, float]) -> None:
    """Keep *durations* of groups."""
    rounded = {group: round(seconds, 1) for group, seconds in sorted(durations.items())}
    DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")
