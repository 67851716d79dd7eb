"""Which tests go to the same worker, and in which order: what shares an expensive control plane, the longest first.

Owns groups and their order, and which tests are unit tests; `durations.json` has the seconds of each group, recorded by
`scripts/test --record`. xdist alone begins with the modules of many tests, which are the quick ones, and starts a real
API server for every module of the contract. Called by `conftest.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
DURATIONS: Final = Path(__file__).with_name("durations.json")
_SERVERS: Final = re.compile(r".*plane|place|embedded|real|fleet|endings|night|browser|renderer|plugin")
"""Fixtures that start a control plane, or another program."""
_APART: Final = ("fleet", "real", "alone", "slow", "cluster")
_STARTS_PROCESSES: Final = re.compile(
    r"\bsubprocess\b|create_subprocess|start_process|start_child|real_plane|embedded_plane|warm_python"
)
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
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def save(tests: Mapping[str, float]) -> None:
    """Record the seconds of each group, given those of each test by node id; groups that did not run keep theirs."""
    groups: dict[str, float] = {}
    for nodeid, seconds in tests.items():
        group = group_of(nodeid)
        groups[group] = groups.get(group, 0.0) + seconds
    kept = {
        group: seconds for group, seconds in recorded().items() if (ROOT / group.partition("[")[0]).exists()
    }
    rounded = {group: round(seconds, 1) for group, seconds in sorted((kept | groups).items())}
    DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")


def is_unit(item: pytest.Item) -> bool:
    """Whether *item* needs no server and starts no process, as its fixtures, its marks and its module's source say."""
    if not isinstance(item, pytest.Function):
        return False
    if any(map(_SERVERS.fullmatch, item.fixturenames)) or any(map(item.get_closest_marker, _APART)):
        return False
    return not _starts_processes(item.path)


@cache
def _starts_processes(path: Path) -> bool:
    return _STARTS_PROCESSES.search(path.read_text()) is not None
