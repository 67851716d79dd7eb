"""Checks of objects: without a living owner, under names of no replica, in handoffs that do not end, of kinds that no
member works, written by other controllers. Pure.

The cause of an object in trouble is `ringleader.cluster.causes`', worked out by `collect` at the second look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ringleader.check.evidence import RingEvidence, Trouble
from ringleader.check.findings import Check, Finding, Level, caused, counted, error, warning
from ringleader.cluster.causes import START, unworked
from ringleader.cluster.managed_fields import writers_of
from ringleader.cluster.thresholds import FOREIGN_OWNERS

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence, Group, ResourceCount

_WAITS: Final = ("Contested",)
"""Reasons that end by themselves: a warning."""


def judge_owners(evidence: Evidence) -> Iterator[Finding]:
    """Objects without an owner, or whose owner is dead or contested."""
    for ring in evidence.rings:
        yield from _lasting(ring, Trouble.UNOWNED, Trouble.DEAD, Trouble.CONTESTED, but=("OwnerUnknown",))


def judge_names(evidence: Evidence) -> Iterator[Finding]:
    """Names on objects that no replica has, or ever had."""
    for ring in evidence.rings:
        yield from _lasting(ring, Trouble.UNKNOWN)
        yield from _lasting(ring, Trouble.CONTESTED, Trouble.DEAD, only=("OwnerUnknown",))


def judge_handoffs(evidence: Evidence) -> Iterator[Finding]:
    """Handoffs that last longer than drainTimeoutSeconds, by the sharder's count or by managedFields."""
    for ring in evidence.rings:
        yield from _lasting(ring, Trouble.LEAVING, but=("Silent",))


def judge_kinds(evidence: Evidence) -> Iterator[Finding]:
    """Every main resource is worked, and every owner watches what bears its name."""
    for ring in evidence.rings:
        if ring.ring.is_deleted:
            continue
        for count in ring.counts:
            if count.is_main and ring.is_unworked(count.resource.group_resource):
                yield _unworked(ring, count)
        yield from _lasting(ring, Trouble.UNWATCHED)


def _lasting(
    ring: RingEvidence, *kinds: Trouble, only: tuple[str, ...] = (), but: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """A finding for each group of objects in the same trouble twice, with the cause of one of them."""
    for count, name, group in ring.groups(*kinds):
        sample = group.lasting
        if sample is None or sample.cause is None or sample.cause.reason in but:
            continue
        if only and sample.cause.reason not in only:
            continue
        yield caused(
            sample.named,
            sample.cause,
            level=Level.WARNING if sample.cause.reason in _WAITS else Level.ERROR,
            ring=ring.name,
            evidence=[f"ring {ring.name}: {so_many(group, count, _shared_by(sample.trouble, name))}"],
        )


def _shared_by(trouble: Trouble, name: str) -> str:
    match trouble:
        case Trouble.UNOWNED:
            return "have no owner"
        case Trouble.LEAVING:
            return f"of {name} wait for their handoff"
        case _:
            return f"name {name}"


def so_many(group: Group, count: ResourceCount, what: str) -> str:
    """Size of *group* among the objects of *count*."""
    return f"{group.count:,} of {count.objects:,} {count.resource.group_resource} {what}"


def _unworked(ring: RingEvidence, count: ResourceCount) -> Finding:
    works = {member: ", ".join(sorted(each.resources or ())) for member, each in ring.state.active.items()}
    return error(
        f"{unworked(ring.name, count.resource.group_resource)}: its {count.objects:,} objects wait",
        ring=ring.name,
        about=f"controllerring/{ring.name}",
        evidence=[f"member {member} works {kinds}" for member, kinds in sorted(works.items())[:3]],
        remedy=START,
    )


def judge_writers(evidence: Evidence) -> Iterator[Finding]:
    """Field managers that write like a controller, to objects of several shards, and are none of the ring's."""
    for ring in evidence.rings:
        if ring.proxies:
            continue  # its controllers write under one name, which no Lease says
        ours = {manager for count in ring.counts for manager in count.ours} | evidence.managers
        ours |= writers_of(ring.ring, ring.state.shards)
        enough = min(FOREIGN_OWNERS, max(1, len(ring.state.working)))
        for count in ring.counts:
            for manager, writer in sorted(count.writers.items()):
                if manager in ours or len(writer.owners) < enough:
                    continue
                what = "the status of" if count.is_main else ""
                written = f"{what} {writer.count} {count.resource.group_resource}".strip()
                yield warning(
                    f"{writer.sample} belongs to {writer.sample_owner}, and {manager} wrote it too: a controller that "
                    "ignores the shard label",
                    ring=ring.name,
                    about=writer.sample,
                    evidence=[
                        f"managedFields: {manager} wrote {written} of {len(writer.owners)} shards"
                        + (f", last at {writer.last:%Y-%m-%dT%H:%M:%SZ}" if writer.last else "")
                    ],
                    remedy=f"stop it, or have it list and watch with the selector {ring.ring.keys.shard}=<its name>; "
                    f"if it may write there, say --manager {manager}",
                )


def _all_owned(evidence: Evidence) -> str:
    objects = sum(count.objects for ring in evidence.rings for count in ring.counts)
    waited = sum(
        group.count
        for ring in evidence.rings
        for _, _, group in ring.groups(Trouble.UNOWNED, Trouble.DEAD, Trouble.CONTESTED)
    )
    of = f"{counted(objects, 'object')} of {counted(len(evidence.rings), 'ring')}"
    if not waited:
        return f"{of} have living owners"
    return f"{of}; {waited:,} had no living owner at the first look, and those looked at again had one"


CHECKS = (
    Check(
        "owners",
        "objects without a living owner",
        judge_owners,
        _all_owned,
        needs=("rings", "leases", "objects", "namespaces"),
    ),
    Check(
        "names",
        "names on objects that no replica has",
        judge_names,
        lambda evidence: "every name on an object is a replica's",
        needs=("rings", "leases", "objects"),
    ),
    Check(
        "handoffs",
        "handoffs that do not end",
        judge_handoffs,
        lambda evidence: "no handoff is late",
        needs=("rings", "leases", "objects"),
    ),
)
KINDS = Check(
    "kinds",
    "kinds that no shard works, owners that do not watch what they own",
    judge_kinds,
    lambda evidence: "every main resource has members that work it, and every owner watches what it owns",
    needs=("rings", "leases", "objects"),
)
WRITERS = Check(
    "writers",
    "controllers that ignore the shard label",
    judge_writers,
    lambda evidence: "no other controller writes objects or their status, as far as managedFields show",
    needs=("rings", "objects"),
)
