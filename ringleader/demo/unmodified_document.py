"""What the demo of unmodified controllers proves, as one document, and the rule of its exit code. Pure.

Owns the names of the fields: other programs read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ringleader.testing.unmodified.fleet import ProxyFleet
from ringleader.testing.unmodified.foreign import WriteReport

Act = Literal["share", "kill", "join", "scale"]


class ActResult(msgspec.Struct, frozen=True):
    """One act. *moved*: Deployments whose member changed; *rolling*: how many rolled when it struck."""

    what: Act
    took_s: float
    moved: int
    rolling: int
    pods_made: int


class UnmodifiedDocument(msgspec.Struct, frozen=True):
    """The outcome of one demo. *owners*: Deployments by member."""

    deployments: int
    owners: dict[str, int]
    unowned: int
    unsettled: int
    replica_sets: int
    pods_made: int
    pods_wanted: int
    findings: int
    writes: int
    foreign_writes: int
    refused_writes: int
    acts: list[ActResult]


def unmodified_document(
    fleet: ProxyFleet, report: WriteReport, acts: Sequence[ActResult]
) -> UnmodifiedDocument:
    """The document of *fleet*, whose members' writes *report* judges."""
    workloads, owners = fleet.workloads, fleet.owners()
    members = set(fleet.wanted())
    counts = workloads.deployments.replica_sets.values()
    return UnmodifiedDocument(
        deployments=owners.total(),
        owners={name: number for name, number in sorted(owners.items()) if name in members},
        unowned=sum(number for name, number in owners.items() if name not in members),
        unsettled=len(workloads.unsettled()),
        replica_sets=len(counts),
        pods_made=workloads.pods_made,
        pods_wanted=sum(count.raised for count in counts),
        findings=len(workloads.findings),
        writes=report.accepted,
        foreign_writes=len(report.foreign),
        refused_writes=report.refused,
        acts=list(acts),
    )


def unmodified_faults(shown: UnmodifiedDocument) -> list[str]:
    """Reasons why the demo failed; empty if it proved every claim."""
    idle = [act.what for act in shown.acts if act.what in ("kill", "join") and not act.rolling]
    found = [
        (shown.unowned, f"{shown.unowned} Deployments have no living owner"),
        (shown.unsettled, f"{shown.unsettled} times a workload is not as it must be at rest"),
        (
            shown.pods_made != shown.pods_wanted,
            f"{shown.pods_made} pods were made, and {shown.pods_wanted} were wanted",
        ),
        (shown.findings, f"{shown.findings} times a pod or ReplicaSet was made twice, or ended for nothing"),
        (
            shown.foreign_writes,
            f"{shown.foreign_writes} writes of controllers to objects that were not theirs were accepted",
        ),
        (not shown.writes, "no write of a controller was seen, so nothing was tested"),
        (bool(idle), f"nothing rolled at the act {', '.join(idle)}, so it tested nothing"),
    ]
    return [reason for wrong, reason in found if wrong]
