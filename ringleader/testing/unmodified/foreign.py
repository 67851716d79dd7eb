"""Judge of the controllers' writes: the audit log says who wrote, the history says whose the object was. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from devcluster.plane import Write
from kubeio.protocol import RingKeys
from ringleader.testing.ownership_checks import accepted
from ringleader.testing.unmodified.workloads import Workloads


@dataclass(slots=True)
class WriteReport:
    """What the API servers made of the members' writes to objects of their ring."""

    accepted: int = 0
    refused: int = 0
    """With a conflict."""
    foreign: list[str] = field(default_factory=list)
    """Accepted, though the object bore another's name just before: it must never happen."""


def judge_writes(writes: Iterable[Write], workloads: Workloads, members: Container[str]) -> WriteReport:
    """Judge the writes of *members*. What a killed server did not log, or did not answer to a create, is not judged."""
    report = WriteReport()
    ring = workloads.ring
    for write in writes:
        if write.user not in members or write.resource not in ring.resources:
            continue
        if not accepted(write):
            report.refused += write.code in (409, 422)
            continue
        report.accepted += 1
        if write.verb == "create" and not write.resource_version:
            continue
        label = _label_before(write, ring.keys, workloads)
        if workloads.members.get(label) != write.user:
            whose = "its controller" if write.verb == "create" else "it"
            what = f"{write.verb} of /{write.subresource}" if write.subresource else write.verb
            report.foreign.append(
                f"{write.resource} {write.namespace}/{write.name}: {what} by {write.user} accepted as version"
                f" {write.resource_version or '(gone)'} while {whose} bore the name {label or '(none)'}"
            )
    return report


def _label_before(write: Write, keys: RingKeys, workloads: Workloads) -> str:
    """The name that the object bore just before *write*; of a create, the name that its controller bore.

    What was carried out though the answer was a 504 has no version: the audit log's order has its place.
    """
    if write.verb != "create":
        has_place = bool(write.resource_version) or write.verb.startswith("delete")
        before = workloads.labels_before(write.uid, _version(write)) if has_place else None
        return (before if before is not None else write.labels_before or {}).get(keys.shard, "")
    above = workloads.labels_before(write.controller, _version(write)) or {}
    own = (write.labels_after or {}).get(keys.shard, "")
    label = above.get(keys.shard, "")
    return label if label == own else f"{label} (and itself {own or 'none'})"


def _version(write: Write) -> int:
    """Beyond all versions if the write left no object."""
    return int(write.resource_version) if write.resource_version else 1 << 62
