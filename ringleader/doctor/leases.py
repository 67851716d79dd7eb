"""Checks of Leases and rings against each other: members with two lives, replicas that are silent or idle, Leases
that do not count, clocks, rings over one resource. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from ringleader.doctor.checks import Check, Told, counted, error, warning
from ringleader.doctor.seen import RingSeen, Seen, SeenShard, duration_s, instant
from ringleader.output import age

SKEW_S: Final = 2.0
"""Clocks that differ by less are well enough: nothing is decided by them, only shown."""
LOCAL_SKEW_S: Final = 5.0
LEFT_OVER_S: Final = 600.0
"""A Lease in the wrong namespace that nobody renewed for so long is what a replica left there once."""
ALL_BUT: Final = 0.5
"""A shard is idle if more than this part of the objects looked at is behind in both looks."""


def judge_members(seen: Seen) -> Iterator[Told]:
    """Names that overlap: two lives of one member at once, one name in two rings."""
    for ring in seen.rings:
        lives: dict[str, list[SeenShard]] = {}
        for shard in ring.working():
            lives.setdefault(ring.member(shard.now), []).append(shard)
        for member, found in sorted(lives.items()):
            if len(found) > 1:
                yield _two_lives(ring, member, found)
    for one, other in combinations(seen.rings, 2):
        if one.ring.spec.lease_namespace == other.ring.spec.lease_namespace:
            continue
        for name in sorted(one.shards.keys() & other.shards.keys()):
            yield error(
                f"{one.lease(name)} and {other.lease(name)} are one name in two rings, {one.name} and {other.name}",
                about=f"lease/{name}",
                remedy="a name lives once: have every life make a fresh name",
            )


def _two_lives(ring: RingSeen, member: str, found: list[SeenShard]) -> Told:
    found.sort(key=lambda shard: (shard.now.metadata.creation_timestamp or "", shard.now.metadata.name))
    names = [shard.now.metadata.name for shard in found]
    counts = ", ".join(f"{name} has {ring.objects_of(name):,} objects" for name in names)
    return error(
        f"member {member} of ring {ring.name} runs {len(names)} times at once: {' and '.join(names)}",
        ring=ring.name,
        about=ring.lease(names[0]),
        evidence=[f"every one of these Leases is being renewed; {counts}", f"{names[-1]} fills the place"],
        remedy=f"stop all processes but one that run with --member {member}, or give them different names",
    )


def judge_silent(seen: Seen) -> Iterator[Told]:
    """Replicas that do not renew, and replicas that renew and do not work."""
    for ring in seen.rings:
        for shard in ring.held():
            name, count = shard.now.metadata.name, ring.objects_of(shard.now.metadata.name)
            if ring.is_silent(shard):
                renewed = instant(shard.now.spec.renew_time)
                since = (ring.second_at - renewed).total_seconds() if renewed else None
                mine = f"; {ring.one_of(name)} and the rest of its {count:,} objects wait" if count else ""
                yield error(
                    f"shard {name} (member {ring.member(shard.now)}) has not renewed its Lease for {age(since)}{mine}",
                    ring=ring.name,
                    about=ring.lease(name),
                    evidence=[f"its duration is {duration_s(shard.now):g} s"],
                    remedy="look at its pod and log; the sharder takes its objects away after two durations",
                )
            elif told := _idle(ring, shard, name):
                yield told


def _idle(ring: RingSeen, shard: SeenShard, name: str) -> Told | None:
    found = ring.behind.get(name)
    if found is None or not found.is_told or not found.looked_at:
        return None
    if len(found.behind) <= found.looked_at * ALL_BUT:
        return None
    return error(
        f"{found.behind[0]} is not worked on: its owner {name} (member {ring.member(shard.now)}) renews its Lease, but "
        "does not observe its own objects",
        ring=ring.name,
        about=found.behind[0],
        evidence=[
            f"of {found.looked_at} of its {found.resource.group_resource}, {len(found.behind)} have a status behind "
            "their spec (observedGeneration), in two looks",
            f"{ring.lease(name)} is held",
        ],
        remedy="look at the replica's log, and at /debug/queue for reconciles that do not end",
    )


def judge_namespaces(seen: Seen) -> Iterator[Told]:
    """Leases that name a ring, in another namespace than the ring's: they do not count."""
    for ring in seen.rings:
        right = ring.ring.spec.lease_namespace
        for lease in ring.strays:
            name, wrong = lease.metadata.name, lease.metadata.namespace
            renewed = instant(lease.spec.renew_time)
            is_left_over = renewed is None or (ring.second_at - renewed).total_seconds() > LEFT_OVER_S
            if is_left_over or lease.spec.holder_identity != name:
                continue
            yield error(
                f"lease/{name} -n {wrong} (member {ring.member(lease)}) does not count for ring {ring.name}: its "
                f"Leases belong into namespace {right}",
                ring=ring.name,
                about=f"lease/{name} -n {wrong}",
                evidence=[f"it bears the label {ring.ring.keys.ring_label}={ring.name}"],
                remedy=f"start that replica with the ring itself (--ring {ring.name}), or with a ring file whose "
                f"leaseNamespace is {right}",
            )


def judge_clocks(seen: Seen) -> Iterator[Told]:
    """Clocks of replicas against the server's, as far as renewals show them; and this machine's."""
    for ring in seen.rings:
        for shard in ring.held():
            name, skew_s = shard.now.metadata.name, skew(ring, shard)
            if abs(skew_s) > SKEW_S:
                way = "ahead" if skew_s > 0 else "behind"
                yield warning(
                    f"the clock of shard {name} (member {ring.member(shard.now)}) is {abs(skew_s):.0f} s {way}",
                    ring=ring.name,
                    about=ring.lease(name),
                    evidence=[f"its Lease was renewed at {shard.now.spec.renew_time} by its own clock"],
                    remedy="set the clock of its node (NTP); no decision of the sharder depends on it, but ages that "
                    "people read and certificates do",
                )
    if abs(seen.local_skew_s) > LOCAL_SKEW_S:
        way = "ahead of" if seen.local_skew_s > 0 else "behind"
        yield warning(
            f"this machine's clock is {abs(seen.local_skew_s):.0f} s {way} the API server's",
            about="this machine",
            remedy="set it (NTP): `ringleader status` shows ages of Leases by it",
        )


def skew(ring: RingSeen, shard: SeenShard) -> float:
    """By how many seconds the shard's clock is ahead of the server's (negative: behind), at least; 0 if unknown.

    A renewal cannot be of the future. One that was seen to happen between both looks was made after the first.
    """
    renewed = instant(shard.now.spec.renew_time)
    if renewed is None:
        return 0.0
    ahead_s = (renewed - ring.second_at).total_seconds()
    if ahead_s > 0:
        return ahead_s
    behind_s = (ring.first_at - renewed).total_seconds()
    return -behind_s if shard.is_renewing and behind_s > 0 else 0.0


def judge_overlaps(seen: Seen) -> Iterator[Told]:
    """Two rings that distribute one resource under one label domain."""
    for one, other in combinations(seen.rings, 2):
        if one.ring.spec.label_domain != other.ring.spec.label_domain:
            continue
        mains = set(one.ring.mains)
        for each in other.ring.spec.resources:
            kind = each.kind.name
            if kind not in mains or not _meet(seen, one, other):
                continue
            sample = next(
                (
                    shown
                    for ring in (one, other)
                    for tally in ring.tallies
                    if tally.resource.group_resource == kind
                    for shown in tally.one_of.values()
                ),
                "",
            )
            such = f", such as {sample}," if sample else ""
            yield warning(
                f"rings {one.name} and {other.name} both distribute {kind} under the label domain "
                f"{one.ring.spec.label_domain}: each object{such} has two owners",
                ring=other.name,
                about=sample or f"controllerring/{other.name}",
                evidence=[f"labels {one.ring.keys.shard} and {other.ring.keys.shard}"],
                remedy="right only if two different controllers work on these objects; else delete one of the rings",
            )


def _meet(seen: Seen, one: RingSeen, other: RingSeen) -> bool:
    """Whether some namespace belongs to both rings."""
    if seen.namespaces is None or (one.selector is None and other.selector is None):
        return True
    return any(
        all(ring.selector is None or ring.selector.matches(labels) for ring in (one, other))
        for labels in seen.namespaces.values()
    )


def _fine_members(seen: Seen) -> str:
    count = sum(len(ring.working()) for ring in seen.rings)
    return f"{counted(count, 'member')}, each with one life"


def _fine_silent(seen: Seen) -> str:
    told = sum(found.looked_at for ring in seen.rings for found in ring.behind.values() if found.is_told)
    if not told:
        return (
            "every Lease is renewed; whether replicas observe their objects is not told by observedGeneration"
        )
    return f"every Lease is renewed, and replicas observe their own objects ({told} looked at)"


MEMBERS = Check("members", "overlapping names", judge_members, _fine_members, needs=("rings", "leases"))
CHECKS = (
    Check(
        "silent",
        "replicas that do not renew, or renew and do not work",
        judge_silent,
        _fine_silent,
        needs=("rings", "leases", "samples"),
    ),
    Check(
        "lease namespaces",
        "Leases in a namespace where they do not count",
        judge_namespaces,
        lambda seen: "no Lease names a ring from another namespace",
        needs=("rings", "leases", "strays"),
    ),
    Check(
        "clocks",
        "clocks that differ from the server's",
        judge_clocks,
        lambda seen: "no clock differs by more than 2 s, as far as renewals show",
        needs=("rings", "leases"),
    ),
    Check(
        "overlaps",
        "two rings over one resource with one label domain",
        judge_overlaps,
        lambda seen: "no resource belongs to two rings of one label domain",
        needs=("rings",),
    ),
)
