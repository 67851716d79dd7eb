"""Checks of sizes that will hurt: objects for each replica, what a death relabels against what watches can hold. Pure.

Owns the limits, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringleader.check.evidence import Evidence, ResourceCount, RingEvidence
from ringleader.check.findings import Check, Finding, warning

OBJECTS_PER_SHARD: Final = 50_000
"""A replica that starts lists them all before it works: minutes, and hundreds of MB in its cache."""
BYTES_PER_SHARD: Final = 512 * 1024 * 1024
HISTORY: Final = 102_400
"""Events that a kube-apiserver keeps of one resource at most (its watch cache); a watch that breaks off and finds its
version gone has to list anew."""
HELD_S: Final = 75
"""How long it means to keep them: more relabels than HISTORY in that time overrun it."""


def judge_sizes(evidence: Evidence) -> Iterator[Finding]:
    for ring in evidence.rings:
        shard_count = len(ring.state.working)
        for count in ring.counts:
            if not count.objects:
                continue
            yield from _of_shards(ring, count, shard_count=shard_count)
            yield from _of_history(ring, count, shard_count=shard_count)


def _of_shards(ring: RingEvidence, count: ResourceCount, *, shard_count: int) -> Iterator[Finding]:
    kind = count.resource.group_resource
    most, name = max((number, name) for name, number in count.owners.items())
    size = most * count.bytes_each
    if not name or (most <= OBJECTS_PER_SHARD and size <= BYTES_PER_SHARD):
        return
    wanted = max(
        shard_count + 1,
        -(-count.objects // OBJECTS_PER_SHARD),
        int(count.objects * count.bytes_each / BYTES_PER_SHARD),
    )
    shown = f", about {size / 1024**2:,.0f} MiB" if count.bytes_each else ""
    yield warning(
        f"shard {name} of ring {ring.name} has {most:,} {kind}{shown}: it lists them all before it works",
        ring=ring.name,
        about=ring.lease(name),
        evidence=[
            f"more than {OBJECTS_PER_SHARD:,} objects or {BYTES_PER_SHARD // 1024**2} MiB for one replica"
        ],
        remedy=f"run {wanted} replicas, or give the present ones memory and a longer start",
    )


def _of_history(ring: RingEvidence, count: ResourceCount, *, shard_count: int) -> Iterator[Finding]:
    """A death moves all objects of a shard, one event each for every watcher of the resource."""
    share = count.objects / max(shard_count, 1)
    if share <= HISTORY / 2:
        return
    kind = count.resource.group_resource
    yield warning(
        f"the death of one replica of ring {ring.name} relabels about {share:,.0f} {kind}: watches that break off "
        "meanwhile must list anew",
        ring=ring.name,
        about=f"controllerring/{ring.name}",
        evidence=[
            f"the API server keeps at most {HISTORY:,} events of a resource; {HISTORY / HELD_S:,.0f} relabels a "
            f"second for {HELD_S} s overrun it"
        ],
        remedy="run more replicas, or lower spec.maxInFlight so that rebalances are slower than the history",
    )


def _fine(evidence: Evidence) -> str:
    most = max(
        (most for ring in evidence.rings for count in ring.counts for most in count.owners.values()),
        default=0,
    )
    return f"{most:,} objects of a resource at most for one replica"


CHECKS = (Check("sizes", "sizes that will hurt", judge_sizes, _fine, needs=("rings", "objects")),)
