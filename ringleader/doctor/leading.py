"""Who leads the sharders, and checks of the sharder and of what it says about rings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ringleader.doctor.checks import Check, Told, counted, error, warning
from ringleader.doctor.seen import ELECTION_LEASE, Seen, duration_s, instant
from ringleader.inspect.cluster.kinds import START
from ringleader.inspect.cluster.sharders import is_leading
from ringleader.output import age

if TYPE_CHECKING:
    from kubeio.models import Lease

_REMEDIES: Final = {
    "FormerController": "scale the former controller to zero: it works beside the replicas",
    "KindUnworked": START,
}


def leader_of(seen: Seen) -> str:
    """The holder of a sharders' election Lease that is being renewed; empty if there is none."""
    for election in seen.elections:
        lease, holder = election.now, election.now.spec.holder_identity or ""
        is_fresh = is_leading(holder, age_s=_age_s(seen, lease), duration_s=duration_s(lease))
        if holder and (election.is_renewing or is_fresh):
            return holder
    return ""


def _age_s(seen: Seen, lease: Lease) -> float:
    renewed = instant(lease.spec.renew_time)
    return (seen.now - renewed).total_seconds() if renewed else float("inf")


def why_nobody_leads(seen: Seen) -> str:
    """Empty if a sharder leads, or if that could not be read."""
    if leader_of(seen) or "election" in seen.gaps:
        return ""
    if not seen.elections:
        return f"no sharder leads (no Lease {ELECTION_LEASE} in any namespace)"
    lease = seen.elections[0].now
    where = f"{lease.metadata.namespace}/{lease.metadata.name}"
    if not lease.spec.holder_identity:
        return f"no sharder leads (nobody holds the Lease {where})"
    return (
        f"no sharder leads (the Lease {where} was last renewed {age(_age_s(seen, lease))} ago by "
        f"{lease.spec.holder_identity})"
    )


def judge_sharder(seen: Seen) -> Iterator[Told]:
    """A sharder leads."""
    if (why := why_nobody_leads(seen)) and seen.rings:
        rings = ("ring " if len(seen.rings) == 1 else "rings ") + ", ".join(ring.name for ring in seen.rings)
        yield error(
            f"{rings}: {why}; new objects and those of dead replicas wait",
            about=f"lease/{ELECTION_LEASE}",
            remedy="start a sharder, or look at the log of those that run; a standby takes over by itself",
        )


def judge_rings(seen: Seen) -> Iterator[Told]:
    """What the sharder says about each ring, and whether it has seen the ring's last edit."""
    for found in seen.rings:
        ring, where = found.ring, f"controllerring/{found.name}"
        reason, message = ring.why_not("Ready")
        if ring.condition("Ready") == "False" and reason != "Releasing":
            yield error(
                f"{where} is not Ready: {reason}: {message}",
                ring=found.name,
                about=where,
                remedy=_REMEDIES.get(
                    reason, f"mend what the message names: kubectl edit controllerring {found.name}"
                ),
            )
        if ring.condition("MembersUncertain") == "True":
            reason, message = ring.why_not("MembersUncertain")
            yield warning(
                f"{where}: {message}",
                ring=found.name,
                about=where,
                remedy="look at the replica that the message names",
            )
        observed = ring.status.get("observedGeneration")
        if ring.condition("Ready") == "Unknown" and not why_nobody_leads(seen):
            yield error(
                f"{where} has no status: no sharder works it",
                ring=found.name,
                about=where,
                remedy="look at the sharder's flags (--ring) and its log",
            )
        elif isinstance(observed, int) and observed < ring.metadata.generation and not why_nobody_leads(seen):
            yield warning(
                f"{where}: its last edit has not been taken up",
                ring=found.name,
                about=where,
                evidence=[f"generation {ring.metadata.generation}, the sharder has seen {observed}"],
                remedy="read the log of the sharder that leads",
            )


def _fine_sharder(seen: Seen) -> str:
    return f"{leader_of(seen)} leads" if seen.rings and leader_of(seen) else "there is no ring to work"


CHECKS = (
    Check(
        "sharder",
        "a sharder that leads",
        judge_sharder,
        _fine_sharder,
        needs=("rings", "election"),
    ),
    Check(
        "rings",
        "rings that are refused or wait",
        judge_rings,
        lambda seen: (
            f"{counted(len(seen.rings), 'ring')} worked, none refused" if seen.rings else "there is no ring"
        ),
        needs=("rings",),
    ),
)
