"""What every fleet test ends with: all objects in their places and fresh, and nothing said by either witness."""

from __future__ import annotations

from devcluster.real.real_plane import RealPlane
from ringleader.testing.evidence import Evidence
from ringleader.testing.fleet import Fleet

CROWDED_S = 90.0


async def judge(fleet: Fleet, *, at_least: int = 100, within_s: float = CROWDED_S) -> Evidence:
    """Wait for the end of the disturbance and let both witnesses speak.

    *at_least*: reconciles that must have been seen, or their silence proves nothing.
    """
    await fleet.wait_converged(within_s=within_s)
    evidence = fleet.evidence()
    evidence.require_reconciles(at_least)
    found = [*evidence.overlaps, *evidence.foreign_writes]
    assert not found, "\n".join(map(str, found))
    return evidence


def require_attended(fleet: Fleet, evidence: Evidence, *, within_s: float) -> None:
    """No object had nobody, and no update waited, for longer than *within_s*.

    A real control plane is three servers more on the same cores, beside other tests: there only an end is required.
    """
    if isinstance(fleet.plane, RealPlane):
        within_s = max(within_s, CROWDED_S)
    longest = evidence.longest_unattended
    assert longest is None or longest.length_s < within_s, longest
