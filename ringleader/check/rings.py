"""Checks of the sharders' leadership, and of what the sharder says about each ring. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ringleader.check.findings import Check, Finding, caused, counted, error, warning
from ringleader.cluster.causes import not_ready_remedy, why_no_leader
from ringleader.cluster.snapshot import ELECTION_LEASE

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence


def judge_sharder(evidence: Evidence) -> Iterator[Finding]:
    """A sharder leads."""
    no_leader = why_no_leader(evidence.snapshot.leadership)
    if no_leader is not None and evidence.rings:
        names = [ring.name for ring in evidence.rings]
        rings = ("ring " if len(names) == 1 else "rings ") + ", ".join(names)
        cause = msgspec.structs.replace(
            no_leader,
            text=f"wait: {no_leader.text}" if len(names) > 1 else f"waits: {no_leader.text}",
            evidence=["new objects and those of dead replicas wait"],
        )
        yield caused(rings, cause, ring=names[0] if len(names) == 1 else "", about=f"lease/{ELECTION_LEASE}")


def judge_rings(evidence: Evidence) -> Iterator[Finding]:
    """Conditions of each ring, and whether the sharder has seen its last edit."""
    is_led = why_no_leader(evidence.snapshot.leadership) is None
    for found in evidence.rings:
        ring, where = found.ring, f"controllerring/{found.name}"
        ready = ring.condition("Ready")
        if ring.refusal:
            yield error(
                f"{where} is refused: {ring.refusal}",
                ring=found.name,
                about=where,
                remedy="correct that field of the ring",
            )
        elif ready.status == "False" and ready.reason != "Releasing":
            yield error(
                f"{where} is not Ready: {ready.reason}: {ready.message}",
                ring=found.name,
                about=where,
                remedy=not_ready_remedy(ready.reason, found.name),
            )
        uncertain = ring.condition("MembersUncertain")
        if uncertain.status == "True":
            yield warning(
                f"{where}: {uncertain.message}",
                ring=found.name,
                about=where,
                remedy="look at the replica that the message names",
            )
        observed = ring.status.get("observedGeneration")
        if ready.status == "Unknown" and is_led:
            yield error(
                f"{where} has no status: no sharder works it",
                ring=found.name,
                about=where,
                remedy="look at the sharder's flags (--ring) and its log",
            )
        elif isinstance(observed, int) and observed < ring.metadata.generation and is_led:
            yield warning(
                f"{where}: its last edit has not been taken up",
                ring=found.name,
                about=where,
                evidence=[f"generation {ring.metadata.generation}, the sharder has observed {observed}"],
                remedy="read the log of the sharder that leads",
            )


def _fine_sharder(evidence: Evidence) -> str:
    leader = evidence.snapshot.leadership.leader
    return f"{leader} leads" if evidence.rings and leader else "there is no ring to work"


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
        lambda evidence: (
            f"{counted(len(evidence.rings), 'ring')} worked, none refused"
            if evidence.rings
            else "there is no ring"
        ),
        needs=("rings",),
    ),
)
