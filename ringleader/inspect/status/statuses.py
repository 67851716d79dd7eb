"""Statuses of rings: as the sharder reports them, by two small reads, or from a list of the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kubeio.clock import SystemClock
from ringleader.cluster.causes import ring_notes
from ringleader.cluster.objects import note_unserved, object_pages, ring_kinds
from ringleader.cluster.placement import Placer
from ringleader.cluster.ring_status import ObjectCount, RingStatus, counted_status, reported_status
from ringleader.progress import progress

if TYPE_CHECKING:
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.reader import ClusterReader
    from ringleader.cluster.snapshot import RingState, Snapshot
    from ringleader.progress import Advance


async def read_statuses(reader: ClusterReader, name: str | None) -> list[RingStatus]:
    """Rings of the cluster, or the one called *name*, as reported. Raises: InputError if it is unknown, KubeError."""
    snapshot = (await reader.snapshot(name, reads_namespaces=False)).require("rings", "leases")
    return [
        msgspec.structs.replace(reported_status(each.ring, each.shards), warning=ring_notes(snapshot, each))
        for each in snapshot.rings
    ]


async def count_statuses(reader: ClusterReader, name: str | None) -> list[RingStatus]:
    """The same from one list of the objects; shows its progress on stderr. Raises: InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    clock, discovery = SystemClock(), Discovery(reader.client)
    snapshot = (await reader.snapshot(name)).require("rings", "leases")
    found = []
    for state in snapshot.rings:
        began = clock.now()
        with progress(f"objects of ring {state.name}") as advance:
            count = await _count(reader, discovery, snapshot, state, advance)
        shown = counted_status(state.ring, state.shards, count)
        age_s, warning = round(clock.now() - began, 1), ring_notes(snapshot, state)
        found.append(msgspec.structs.replace(shown, age_seconds=age_s, warning=warning))
    return found


async def _count(
    reader: ClusterReader, discovery: Discovery, snapshot: Snapshot, state: RingState, advance: Advance
) -> ObjectCount:
    """The main objects of a ring."""
    kinds, keys = await ring_kinds(discovery, state.ring), state.ring.keys
    note_unserved(state.ring, kinds)
    placer, count = Placer(reader.client, state, kinds), ObjectCount()
    mains = [resource for resource in kinds.resources if kinds.is_main(resource)]
    pages = object_pages(reader.client, mains, advance=advance, timeout_s=reader.timeout_s)
    async for resource, objects in pages:
        metas = [each.meta for each in objects if snapshot.wants(state.ring, each.meta)]
        for labels, member, main in await placer.desired(resource, metas):
            count.add(
                labels.get(keys.shard, ""),
                is_leaving=keys.drain in labels,
                desired=state.active_shard(member),
                main=main,
            )
    return count
