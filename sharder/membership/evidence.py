"""Evidence: a consistent read of the ring's Leases, required before a name is written (protocol, 6.3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The names whose Leases a consistent read, begun at *begun_at* of the sharder's clock, showed held."""

    held: frozenset[str]
    begun_at: float
