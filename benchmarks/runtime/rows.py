"""What a run of the runtime's benchmark is asked for, and which lines each row fills. No measuring here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ROWS: Final = ("start", "rate", "event", "stall", "write", "lease")
"""In the order in which they run."""
NEED_WRK: Final = frozenset({"write"})
NEED_PEERS: Final = frozenset({"start"})
"""Rows that want the peer in Go."""
LINES: Final[Mapping[str, tuple[str, ...]]] = {
    "start": (
        *("start-raw-list", "start-raw-go", "start-compressed-list", "start-compressed-go"),
        *("rss-raw", "rss-compressed", "metadata-go", "metadata-rss"),
    ),
    "rate": ("rate-raw", "rate-model", "rate-kopf"),
    "event": ("event-p50", "event-p99", "event-real"),
    "stall": ("stall",),
    "write": ("write",),
    "lease": ("lease",),
}
"""The lines of the table that each row fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    objects: int = 100_000
    rows: tuple[str, ...] = ROWS
    is_real: bool = True
    rounds: int = 2
    """How often the contestants of a row take turns."""
    page: int = 5_000
    """Objects in a page of the plain LIST."""
    reconciles: int = 500_000
    """At least so many are counted for a rate."""
    samples: int = 1_000
    """Events of the stub server; a fifth as many on the control plane."""
    limit_s: float = 25.0
    """Longest run of wrk, and of the writes that are compared with it."""
    connections: int = 64
    """Of wrk, and workers of the controller that writes."""
    minutes: float = 10.0
    """How long the Lease is watched under full load."""
    lease_s: int = 15
    start_within_s: float = 600.0
    """Patience with one start."""
