"""What a run of the sharder's benchmark is asked for, and what its processes cost. No measuring here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ROWS: Final = ("assign", "guard", "new", "leader", "cpu", "takeover", "rest", "join", "term", "restart")
"""In the order in which they run."""
NEED_WRK: Final = frozenset({"assign", "takeover", "join"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    objects: int = 100_000
    rows: tuple[str, ...] = ROWS
    is_real: bool = True
    rounds: int = 2
    """How often sharder and wrk alternate in the first assignment."""
    guard_rounds: int = 8
    """How often the sharder assigns without and under the chart's admission policies."""
    limit_s: float = 25.0
    """Longest run of wrk."""
    connections: int = 64
    samples: int = 200
    """New objects on an idle ring."""
    updates_per_s: int = 500
    updates_s: float = 20.0
    """Length of each half of the row `cpu`."""
    rest_sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    lease_s: int = 15
    """Lease of sharders and replicas."""


@dataclass(slots=True)
class Peaks:
    """Peak memory of every sharder process that ran, by the row in which it did."""

    by_row: dict[str, float] = field(default_factory=dict)
    processes: int = 1

    def note(self, row: str, mb: float, processes: int) -> None:
        self.by_row[row] = max(mb, self.by_row.get(row, 0.0))
        self.processes = max(processes, self.processes)
