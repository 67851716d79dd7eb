"""Checks of objects: without a living owner, under names that nobody has, in handoffs that do not end, written by
strangers. Pure.

A cause is looked for outside the object: no sharder, a ring that is not ready, no replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubeio.protocol import is_shard_name
from ringleader.doctor.checks import Check, Told, counted, error, some, warning
from ringleader.doctor.leading import leader_of, why_nobody_leads
from ringleader.doctor.seen import Group, RingSeen, Sample, Seen, Tally, Trouble
from ringleader.inspect.cluster.kinds import ROLL, START, unworked
from ringleader.inspect.cluster.rings import is_tombstone
from ringleader.inspect.cluster.writers import writers_of
from ringleader.output import age

if TYPE_CHECKING:
    from ringleader.doctor.seen import SeenShard

FOREIGN_OWNERS = 2
"""A controller that heeds no selector writes to objects of this many shards at least."""


def lasting(group: Group) -> Sample | None:
    """An object of *group* that a second look found in the same trouble."""
    return next((sample for sample in group.samples if sample.persists), None)


def why_waiting(seen: Seen, ring: RingSeen, tally: Tally) -> tuple[str, str]:
    """Why objects of *ring* that *tally* counts get no living owner, and what to do."""
    if nobody := why_nobody_leads(seen):
        return nobody, "start a sharder, or look at the log of those that run; a standby takes over by itself"
    if ring.ring.condition("Ready") == "False":
        reason, message = ring.ring.why_not("Ready")
        if reason != "KindUnworked" and not (reason == "Waiting" and not ring.working()):
            return (
                f"ring {ring.name} is not Ready: {reason}: {message}",
                f"mend what the message names: kubectl edit controllerring {ring.name}",
            )
    if not ring.working():
        silent = [shard.now.metadata.name for shard in ring.held()]
        told = f"; silent: {some(silent)}" if silent else ""
        where = ring.ring.spec.lease_namespace
        return (
            f"no replica renews a Lease of ring {ring.name} in namespace {where}{told}",
            "start replicas of the ring's controller, and read the log of one that ends",
        )
    if ring.ring.spec.min_members > len(ring.working()):
        return (
            f"ring {ring.name} waits for {ring.ring.spec.min_members} members (minMembers) and has "
            f"{len(ring.working())}",
            "start more replicas, or lower spec.minMembers",
        )
    if main := ring.unworked(tally):
        return unworked(ring.name, main), START
    if lacking := _lacking(ring, tally):
        return f"{some(lacking)} may be to have it and do not watch {tally.resource.group_resource}", ROLL
    return (
        f"{leader_of(seen) or 'the sharder'} leads and has not assigned it",
        "read the log of the sharder that leads; its /metrics show ringleader_unowned_objects",
    )


def _lacking(ring: RingSeen, tally: Tally) -> list[str]:
    """Shards that work a main resource that controls these objects, and do not watch them."""
    mains, kind = ring.mains_of(tally), tally.resource.group_resource
    return [each.shard for each in ring.lives() if each.ignores(kind) and any(map(each.works, mains))]


def judge_owners(seen: Seen) -> Iterator[Told]:
    """Objects without an owner, or whose owner is dead or contested."""
    for ring in seen.rings:
        if ring.ring.metadata.deletion_timestamp:
            continue
        for tally in ring.tallies:
            yield from _unowned(seen, ring, tally)
            yield from _dead(seen, ring, tally)
            yield from _contested(ring, tally)


def _unowned(seen: Seen, ring: RingSeen, tally: Tally) -> Iterator[Told]:
    for group in tally.trouble(Trouble.UNOWNED).values():
        if sample := lasting(group):
            cause, remedy = why_waiting(seen, ring, tally)
            yield error(
                f"{sample.named} has no owner: {cause}",
                ring=ring.name,
                about=sample.named,
                evidence=[so_many(group, tally, "have no owner")],
                remedy=remedy,
            )


def _dead(seen: Seen, ring: RingSeen, tally: Tally) -> Iterator[Told]:
    for name, group in tally.trouble(Trouble.DEAD).items():
        if sample := lasting(group):
            cause, remedy = why_waiting(seen, ring, tally)
            yield error(
                f"{sample.named} belongs to {name}, which is dead: {cause}",
                ring=ring.name,
                about=sample.named,
                evidence=[
                    so_many(group, tally, f"name {name}"),
                    f"the Lease {name} is held by {_holder(ring, name)}",
                ],
                remedy=remedy,
            )


def _contested(ring: RingSeen, tally: Tally) -> Iterator[Told]:
    """Names whose Lease was taken while somebody may still work under it; tombstones are `judge_names`'."""
    for name, group in tally.trouble(Trouble.CONTESTED).items():
        sample = lasting(group)
        shard = ring.shards.get(name)
        if sample and shard and not is_tombstone(ring.ring, shard.now):
            yield warning(
                f"{sample.named} waits: the Lease of its owner {name} was taken by force and is contested for "
                f"{ring.ring.spec.max_lease_duration_seconds:g} s",
                ring=ring.name,
                about=sample.named,
                evidence=[so_many(group, tally, f"name {name}")],
                remedy="wait; look at the replica's log for why it did not hand over",
            )


def judge_names(seen: Seen) -> Iterator[Told]:
    """Names on objects that no replica has, or ever had."""
    for ring in seen.rings:
        for tally in ring.tallies:
            for group in tally.trouble(Trouble.UNKNOWN).values():
                if sample := lasting(group):
                    yield _unknown(seen, ring, tally, group, sample)
            for name, group in tally.trouble(Trouble.CONTESTED).items():
                shard = ring.shards.get(name)
                sample = lasting(group)
                if sample and shard and is_tombstone(ring.ring, shard.now):
                    yield _tombstoned(ring, tally, group, sample, shard)


def _unknown(seen: Seen, ring: RingSeen, tally: Tally, group: Group, sample: Sample) -> Told:
    name = sample.owner
    cause, remedy = why_waiting(seen, ring, tally)
    stranger = ring.strangers.get(name)
    if not is_shard_name(name):
        what = "which cannot be the name of a Lease"
    elif stranger is not None:
        other = stranger.metadata.labels.get(ring.ring.keys.ring_label)
        belongs = f"a shard of ring {other}" if other else "a Lease of somebody else"
        what = f"which is {belongs}, not a shard of ring {ring.name}"
    else:
        what = f"and no Lease of that name is in namespace {ring.ring.spec.lease_namespace}"
    return error(
        f"{sample.named} names {name}, {what}: {cause}",
        ring=ring.name,
        about=sample.named,
        evidence=[so_many(group, tally, f"name {name}")],
        remedy=f"{remedy}; keep the label {ring.ring.keys.shard} out of git and manifests",
    )


def _tombstoned(ring: RingSeen, tally: Tally, group: Group, sample: Sample, shard: SeenShard) -> Told:
    name = shard.now.metadata.name
    since = shard.now.metadata.annotations.get(ring.ring.keys.contested, "")
    wait_s = ring.ring.spec.max_lease_duration_seconds
    return error(
        f"{sample.named} names {name}, whose Lease does not exist: it was deleted by hand, or the label was written "
        f"by hand",
        ring=ring.name,
        about=sample.named,
        evidence=[
            so_many(group, tally, f"name {name}"),
            f"the sharder made a tombstone for the name at {since or 'an unknown time'}",
        ],
        remedy=f"wait: it is assigned {wait_s:g} s after that (maxLeaseDurationSeconds); do not delete Leases, and "
        f"keep the label {ring.ring.keys.shard} out of git and manifests",
    )


def judge_drains(seen: Seen) -> Iterator[Told]:
    """Handoffs that last longer than drainTimeoutSeconds, by the sharder's count or by managedFields."""
    for ring in seen.rings:
        reason, message = ring.ring.why_not("DrainStuck")
        is_told = ring.ring.condition("DrainStuck") == "True"
        limit_s = ring.ring.spec.drain_timeout_seconds
        for tally in ring.tallies:
            for name, group in tally.trouble(Trouble.LEAVING).items():
                sample = lasting(group)
                if sample is None:
                    continue
                late_s = _late_s(seen, sample)
                if not (late_s or 0) > limit_s and not (is_told and name in message):
                    continue
                shown = f"for {age(late_s)}" if late_s is not None else f"for more than {limit_s:g} s"
                yield error(
                    f"{sample.named} is not handed over: its owner {name} was asked to, and has not answered {shown}",
                    ring=ring.name,
                    about=sample.named,
                    evidence=[
                        so_many(group, tally, f"of {name} wait for their handoff"),
                        *([f"condition DrainStuck: {reason}: {message}"] if is_told else []),
                    ],
                    remedy="look at the owner's longest reconcile (/debug/queue) and its log; delete its pod, or set "
                    "drainPolicy: Force",
                )


def _late_s(seen: Seen, sample: Sample) -> float | None:
    return (seen.now - sample.drain_since).total_seconds() if sample.drain_since else None


def judge_writers(seen: Seen) -> Iterator[Told]:
    """Field managers that write like a controller, to objects of several shards, and are none of the ring's."""
    for ring in seen.rings:
        ours = {manager for tally in ring.tallies for manager in tally.ours} | seen.managers
        ours |= writers_of(ring.ring, ring.lives())
        for tally in ring.tallies:
            for manager, hand in sorted(tally.hands.items()):
                if manager in ours:
                    continue
                if len(hand.owners) < min(FOREIGN_OWNERS, max(1, len(ring.working()))):
                    continue
                what = "the status of" if tally.is_main else ""
                written = f"{what} {hand.count} {tally.resource.group_resource}".strip()
                yield warning(
                    f"{hand.sample} belongs to {hand.sample_owner}, and {manager} writes it too: a controller that "
                    "does not heed the shard label",
                    ring=ring.name,
                    about=hand.sample,
                    evidence=[
                        f"managedFields: {manager} wrote {written} of {len(hand.owners)} shards"
                        + (f", last at {hand.last:%Y-%m-%dT%H:%M:%SZ}" if hand.last else "")
                    ],
                    remedy=f"stop it, or have it list and watch with the selector {ring.ring.keys.shard}=<its name>; "
                    f"if it may write there, say --manager {manager}",
                )


def _holder(ring: RingSeen, name: str) -> str:
    shard = ring.shards.get(name)
    return (shard.now.spec.holder_identity if shard else "") or "nobody"


def so_many(group: Group, tally: Tally, what: str) -> str:
    """How many of the objects that *tally* counts are in the trouble of *group*."""
    return f"{group.count:,} of {tally.objects:,} {tally.resource.group_resource} {what}"


def _all_owned(seen: Seen) -> str:
    objects = sum(tally.objects for ring in seen.rings for tally in ring.tallies)
    waited = sum(
        group.count
        for ring in seen.rings
        for tally in ring.tallies
        for (trouble, _), group in tally.groups.items()
        if trouble in (Trouble.UNOWNED, Trouble.DEAD, Trouble.CONTESTED)
    )
    of = f"{counted(objects, 'object')} of {counted(len(seen.rings), 'ring')}"
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
        lambda seen: "every name on an object is a replica's",
        needs=("rings", "leases", "objects"),
    ),
    Check(
        "drains",
        "handoffs that do not end",
        judge_drains,
        lambda seen: "no handoff is late",
        needs=("rings", "leases", "objects"),
    ),
)
WRITERS = Check(
    "writers",
    "controllers that do not heed the shard label",
    judge_writers,
    lambda seen: "nobody else writes objects or their status, as far as managedFields tell",
    needs=("rings", "objects"),
)
