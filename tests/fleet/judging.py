"""The end of every fleet test: all objects at their places and fresh, and no finding of either check."""

from __future__ import annotations

from ringleader.testing.evidence import Evidence
from ringleader.testing.fleet import Fleet


async def judge(fleet: Fleet, *, at_least: int = 100, within_s: float = 60.0) -> Evidence:
    """Wait for the end of the disturbance, then run both checks.

    *at_least*: reconciles that the journals must have; fewer prove nothing.
    """
    await fleet.wait_converged(within_s=within_s)
    evidence = fleet.evidence()
    evidence.require_reconciles(at_least)
    found = [*evidence.overlaps, *evidence.foreign_writes]
    assert not found, "\n".join(map(str, found))
    return evidence


def unattended_s(evidence: Evidence) -> float:
    """The longest time an object had nobody, or its update waited."""
    longest = evidence.longest_unattended
    return longest.length_s if longest is not None else 0.0
