"""Reads the rings for `ringleader check`: two snapshots, every object by pages of metadata, a few whole objects twice.

The order is Leases, objects, a pause, Leases and the objects in trouble once more: what is on its way is not taken for
what is stuck. Never writes. The rest of the cluster is `environment`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import Forbidden, InputError, NotFound
from kubeio.observed import observed
from ringleader.check.counting import count_page, trouble_of
from ringleader.check.evidence import Behind, Evidence, ResourceCount, RingEvidence, Sample
from ringleader.cluster.managed_fields import HasDatedMeta, dated_meta
from ringleader.cluster.object_causes import cause_of
from ringleader.cluster.object_reader import read_state
from ringleader.cluster.objects import named, object_pages
from ringleader.cluster.placement import Placer
from sharder.planning.keys import RingKinds

if TYPE_CHECKING:
    from kubeio.models import GroupResource
    from kubeio.resource import ApiResource
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.causes import Cause
    from ringleader.cluster.managed_fields import DatedMeta
    from ringleader.cluster.reader import ClusterReader
    from ringleader.cluster.snapshot import RingState, Snapshot

CHECKED_AGAIN: Final = 200
"""Samples that are read a second time, of all troubles together."""
LOOKED_AT: Final = 20
"""Objects of each shard that are read whole: status.observedGeneration stands nowhere else."""


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class LookPace:
    """*again_s*: how long after the first look the second one begins; *show* is called with the progress."""

    again_s: float
    show: Callable[[str], None]


async def collect(reader: ClusterReader, discovery: Discovery, only: str | None, pace: LookPace) -> Evidence:
    """The rings' part of the evidence. Raises: Unreachable, Unauthorized, InputError for an unknown ring."""
    began = asyncio.get_running_loop().time()
    pace.show("reading rings and Leases")
    first = await reader.snapshot(only, finds_strays=True)
    rings = [RingEvidence(state) for state in first.rings]
    for ring in rings:
        if f"leases:{ring.name}" not in first.gaps:
            await _count_objects(reader, first, ring, discovery, pace)
    behind = await _look_at_status(reader, rings, first=None)
    pace.show("waiting for the second look")
    await asyncio.sleep(max(0.0, began + pace.again_s - asyncio.get_running_loop().time()))
    try:
        later = await reader.snapshot(only, finds_strays=True)
    except InputError:  # the ring is gone meanwhile
        later = first
    snapshot = later.after(first)
    for ring, state in zip(rings, snapshot.rings, strict=True):
        ring.state = state
    await _look_at_status(reader, rings, first=behind)
    await _look_at_samples(reader, snapshot, rings)
    reader.gaps |= snapshot.gaps
    if "rings" in reader.gaps and isinstance(reader.gaps["rings"].error, NotFound):
        del reader.gaps["rings"]  # the check `crd` says so
    return Evidence(snapshot, rings, reader.gaps)


# ---- objects --------------------------------------------------------------------------------------------------


async def _count_objects(
    reader: ClusterReader, snapshot: Snapshot, ring: RingEvidence, discovery: Discovery, pace: LookPace
) -> None:
    """One count for each resource of *ring* that is served: mains first, then what they control."""
    served: dict[GroupResource, ApiResource] = {}
    for kind in ring.ring.kinds:
        found = await reader.attempt(f"objects:{ring.name}:{kind}", discovery.resolve(str(kind)))
        if found is not None:
            served[kind] = found
    ring.kinds = kinds = RingKinds(ring.ring.spec, served)
    ring.counts = [ResourceCount(each, is_main=kinds.is_main(each)) for each in kinds.resources]
    for count in ring.counts:
        part = f"objects:{ring.name}:{count.resource.group_resource}"
        await reader.attempt(part, _read_objects(reader, snapshot, ring.state, kinds, count, pace))


async def _read_objects(  # noqa: PLR0917
    reader: ClusterReader,
    snapshot: Snapshot,
    state: RingState,
    kinds: RingKinds,
    count: ResourceCount,
    pace: LookPace,
) -> None:
    async for page in object_pages(reader.client, [count.resource], timeout_s=reader.timeout_s):
        metas = [dated_meta(each.raw) for each in page.objects]
        count_page(count, metas, snapshot=snapshot, state=state, kinds=kinds)
        pace.show(f"ring {state.name}: {count.objects:,} {count.resource.group_resource}")


# ---- objects in trouble, once more ----------------------------------------------------------------------------


async def _look_at_samples(reader: ClusterReader, snapshot: Snapshot, rings: list[RingEvidence]) -> None:
    """Note the cause of each sample that is still in the trouble that the first look found."""
    placers = {
        ring.name: Placer(reader.client, ring.state, ring.kinds)
        for ring in rings
        if ring.kinds is not None and not ring.ring.is_deleted
    }
    samples = [
        (placers[ring.name], sample)
        for ring in rings
        if ring.name in placers
        for count in ring.counts
        for group in count.groups.values()
        for sample in group.samples
    ]

    async def again(job: tuple[Placer, Sample]) -> None:
        placer, sample = job
        part = f"objects:{placer.state.name}:{sample.resource.group_resource}"
        sample.cause = await reader.attempt(part, _cause(reader, snapshot, placer, sample))

    await reader.each(samples[:CHECKED_AGAIN], again)


async def _cause(reader: ClusterReader, snapshot: Snapshot, placer: Placer, sample: Sample) -> Cause | None:
    """None if the object is well, or in another trouble than before."""
    meta = await _read_again(reader, sample)
    if meta is None:
        return None
    state = placer.state
    keys, kind = state.ring.keys, sample.resource.group_resource
    owner, drain = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain)
    trouble = trouble_of(owner, drain, state, kind=kind)
    if (trouble, owner, drain) != (sample.trouble, sample.owner, sample.drain):
        return None  # it moves: what the sharder has found meanwhile is not stuck
    found = await read_state(reader, snapshot, placer, sample.resource, meta, is_lasting=True)
    return cause_of(found) if found is not None else None


async def _read_again(reader: ClusterReader, sample: Sample) -> DatedMeta | None:
    try:
        found = await reader.client.get(
            sample.resource,
            sample.meta.name,
            namespace=sample.meta.namespace,
            type=HasDatedMeta,
            metadata_only=True,
            timeout_s=reader.timeout_s,
        )
    except NotFound:
        return None
    except Forbidden:  # may list, may not get: believe what was listed
        return sample.meta
    return found.metadata


# ---- whole objects: whether replicas observe them -------------------------------------------------------------

Seen = dict[tuple[str, str], dict[str, int]]
"""By ring and shard: the generation of the objects that were behind."""


async def _look_at_status(reader: ClusterReader, rings: list[RingEvidence], *, first: Seen | None) -> Seen:
    """One look at some objects of every shard; the second one notes in the rings what has not moved since *first*."""
    found: Seen = {}
    jobs = [
        (ring, count, name)
        for ring in rings
        for count in ring.counts[:1]
        for name in sorted(ring.state.by_name)
        if count.is_main and count.owners[name]
    ]

    async def one(job: tuple[RingEvidence, ResourceCount, str]) -> None:
        ring, count, name = job
        asked = reader.client.list_as(
            count.resource,
            type=_RawPage,
            label_selector=f"{ring.ring.keys.shard}={name}",
            limit=LOOKED_AT,
            timeout_s=reader.timeout_s,
        )
        page = await reader.attempt(f"samples:{ring.name}", asked)
        if page is None:
            return
        raws = [bytes(raw) for raw in page.items or ()]
        count.bytes_each = max(count.bytes_each, sum(map(len, raws)) / max(len(raws), 1))
        objects = [whole for raw in raws if (whole := observed(raw)) is not None]
        late = [whole.metadata for whole in objects if whole.is_behind]
        behind = {named(count.resource, meta): meta.generation for meta in late}
        found[ring.name, name] = behind
        if first is not None:
            before = first.get((ring.name, name), {})
            moved = before.keys() - behind.keys()
            stuck = [] if moved else [shown for shown in behind if shown in before]
            is_reported = any(whole.generation is not None for whole in objects)
            ring.behind[name] = Behind(count.resource, len(objects), stuck, is_reported)

    await reader.each(jobs, one)
    for (
        ring
    ) in rings:  # a kind has observedGeneration if any object does: a shard that never worked shows none
        is_reported = any(each.is_reported for each in ring.behind.values())
        for each in ring.behind.values():
            each.is_reported = is_reported
    return found
