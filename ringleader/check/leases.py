"""Checks of Leases and rings against each other: members with two shards, replicas that are silent or idle, Leases
that do not count, clocks, rings over one resource. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from ringleader.check.evidence import Trouble
from ringleader.check.findings import Check, Finding, caused, counted, error, warning
from ringleader.cluster.causes import silence, silent_shards
from ringleader.cluster.managed_fields import instant
from ringleader.cluster.object_causes import unobserved
from ringleader.cluster.thresholds import ALL_BUT, LEFT_OVER_S, LOCAL_SKEW_S, SKEW_S

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence, RingEvidence
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import RingState


def judge_members(evidence: Evidence) -> Iterator[Finding]:
    """Names that overlap: two shards of one member at once, one name in two rings."""
    for ring in evidence.rings:
        shards: dict[str, list[Shard]] = {}
        for shard in ring.state.working:
            shards.setdefault(shard.member, []).append(shard)
        for member, found in sorted(shards.items()):
            if len(found) > 1:
                yield _two_shards(ring, member, found)
    for one, other in combinations(evidence.rings, 2):
        if one.ring.spec.lease_namespace == other.ring.spec.lease_namespace:
            continue
        for name in sorted(one.state.by_name.keys() & other.state.by_name.keys()):
            yield error(
                f"{one.lease(name)} and {other.lease(name)} are one name in two rings, {one.name} and {other.name}",
                about=f"lease/{name}",
                remedy="a name lives once: have every shard make a fresh name",
            )


def _two_shards(ring: RingEvidence, member: str, found: list[Shard]) -> Finding:
    found.sort(key=lambda shard: (shard.created, shard.name))
    names = [shard.name for shard in found]
    counts = ", ".join(f"{name} has {ring.objects_of(name):,} objects" for name in names)
    return error(
        f"member {member} of ring {ring.name} runs {len(names)} times at once: {' and '.join(names)}",
        ring=ring.name,
        about=ring.lease(names[0]),
        evidence=[f"every one of these Leases is being renewed; {counts}", f"{names[-1]} is active"],
        remedy=f"stop all processes but one that run with --member {member}, or give them different names",
    )


def judge_silent(evidence: Evidence) -> Iterator[Finding]:
    """Replicas that do not renew, and replicas that renew and do not work."""
    for ring in evidence.rings:
        for shard in silent_shards(ring.state):
            count, one = ring.objects_of(shard.name), ring.one_of(shard.name)
            cause = silence(shard, evidence.snapshot.leadership)
            yield caused(
                "shard",
                cause,
                ring=ring.name,
                about=ring.lease(shard.name),
                evidence=[f"{one} and the rest of its {count:,} objects wait"] if count else [],
            )
        for shard in ring.state.working:
            if (idle := _idle(ring, shard)) is not None:
                yield idle


def _idle(ring: RingEvidence, shard: Shard) -> Finding | None:
    found = ring.behind.get(shard.name)
    if found is None or not found.is_reported or not found.looked_at:
        return None
    if len(found.behind) <= found.looked_at * ALL_BUT:
        return None
    if any(name == shard.name and group.lasting for _, name, group in ring.groups(Trouble.LEAVING)):
        return None  # it is stuck in a reconcile: its late handoffs say so already
    cause = msgspec.structs.replace(
        unobserved(shard.name),
        evidence=[
            f"of {found.looked_at} of its {found.resource.group_resource}, {len(found.behind)} have a status behind "
            "their spec (observedGeneration), in two looks",
            f"{ring.lease(shard.name)} is held and renewed",
        ],
    )
    return caused(found.behind[0], cause, ring=ring.name)


def judge_namespaces(evidence: Evidence) -> Iterator[Finding]:
    """Leases that name a ring, in another namespace than the ring's: they do not count."""
    for ring in evidence.rings:
        right, keys = ring.ring.spec.lease_namespace, ring.ring.keys
        for lease in ring.state.strays:
            name, wrong = lease.metadata.name, lease.metadata.namespace
            renewed = instant(lease.spec.renew_time)
            is_left_over = renewed is None or (ring.state.read_at - renewed).total_seconds() > LEFT_OVER_S
            if is_left_over or lease.spec.holder_identity != name:
                continue
            member = lease.metadata.annotations.get(keys.member, name)
            yield error(
                f"lease/{name} -n {wrong} (member {member}) does not count for ring {ring.name}: its Leases belong"
                f" into namespace {right}",
                ring=ring.name,
                about=f"lease/{name} -n {wrong}",
                evidence=[f"it bears the label {keys.ring_label}={ring.name}"],
                remedy=f"start that replica with the ring itself (--ring {ring.name}), or with a ring file whose "
                f"leaseNamespace is {right}",
            )


def judge_clocks(evidence: Evidence) -> Iterator[Finding]:
    """Clocks of replicas against the server's, as far as renewals show them; and this machine's."""
    for ring in evidence.rings:
        for shard in ring.state.held:
            skew_s = skew(ring.state, shard)
            if abs(skew_s) > SKEW_S:
                way = "ahead" if skew_s > 0 else "behind"
                yield warning(
                    f"the clock of shard {shard.name} (member {shard.member}) is {abs(skew_s):.0f} s {way}",
                    ring=ring.name,
                    about=ring.lease(shard.name),
                    evidence=[f"its Lease was renewed at {shard.lease.spec.renew_time} by its own clock"],
                    remedy="set the clock of its node (NTP); no decision of the sharder depends on it, but ages that "
                    "people read and certificates do",
                )
    local_s = evidence.snapshot.clock_ahead_s
    if abs(local_s) > LOCAL_SKEW_S:
        way = "ahead of" if local_s > 0 else "behind"
        yield warning(
            f"this machine's clock is {abs(local_s):.0f} s {way} the API server's",
            about="this machine",
            remedy="set it (NTP): certificates are judged by it; ages here are by the server's",
        )


def skew(state: RingState, shard: Shard) -> float:
    """By how many seconds the shard's clock is ahead of the server's (negative: behind), at least; 0 if unknown.

    A renewal cannot be of the future. One between both looks was made after the first.
    """
    renewed = instant(shard.lease.spec.renew_time)
    if renewed is None:
        return 0.0
    ahead_s = (renewed - state.read_at).total_seconds()
    if ahead_s > 0:
        return ahead_s
    behind_s = (state.began_at - renewed).total_seconds()
    return -behind_s if shard.is_renewing and behind_s > 0 else 0.0


def judge_overlaps(evidence: Evidence) -> Iterator[Finding]:
    """Two rings that distribute one resource under one label domain."""
    for one, other in combinations(evidence.rings, 2):
        if one.ring.spec.label_domain != other.ring.spec.label_domain:
            continue
        mains = set(one.ring.mains)
        for kind in other.ring.mains:
            if kind not in mains or not _meet(evidence, one, other):
                continue
            sample = next(
                (
                    shown
                    for ring in (one, other)
                    for count in ring.counts
                    if count.resource.group_resource == kind
                    for shown in count.one_of.values()
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


def _meet(evidence: Evidence, one: RingEvidence, other: RingEvidence) -> bool:
    """Whether some namespace belongs to both rings."""
    namespaces, specs = evidence.snapshot.namespaces, (one.ring.spec, other.ring.spec)
    if namespaces is None or all(spec.namespace_selector is None for spec in specs):
        return True
    return any(all(spec.selects_namespace(labels) for spec in specs) for labels in namespaces.values())


def _fine_members(evidence: Evidence) -> str:
    count = sum(len(ring.state.working) for ring in evidence.rings)
    return f"{counted(count, 'member')}, each with one shard"


def _fine_silent(evidence: Evidence) -> str:
    looked_at = sum(
        found.looked_at for ring in evidence.rings for found in ring.behind.values() if found.is_reported
    )
    if not looked_at:
        return "every Lease is renewed; no object has an observedGeneration that shows whether replicas observe it"
    return f"every Lease is renewed, and replicas observe their own objects ({looked_at} looked at)"


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
        lambda evidence: "no Lease names a ring from another namespace",
        needs=("rings", "leases", "strays"),
    ),
    Check(
        "clocks",
        "clocks that differ from the server's",
        judge_clocks,
        lambda evidence: "no clock differs by more than 2 s, as far as renewals show",
        needs=("rings", "leases"),
    ),
    Check(
        "overlaps",
        "two rings over one resource with one label domain",
        judge_overlaps,
        lambda evidence: "no resource belongs to two rings of one label domain",
        needs=("rings",),
    ),
)
