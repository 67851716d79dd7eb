"""From pages of metadata to counts: owners, objects in trouble, writers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.check.evidence import (
    MAX_NAMES,
    OTHER_NAMES,
    SAMPLES,
    ForeignWriter,
    Group,
    ResourceCount,
    Sample,
    Trouble,
)
from ringleader.cluster.managed_fields import DatedMeta, instant, is_tool
from ringleader.cluster.objects import named
from sharder.planning.keys import Outsider

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ringleader.cluster.ring import Ring
    from ringleader.cluster.snapshot import RingState, Snapshot
    from sharder.planning.keys import RingKinds


def count_page(
    count: ResourceCount,
    metas: Iterable[DatedMeta],
    *,
    snapshot: Snapshot,
    state: RingState,
    kinds: RingKinds,
) -> None:
    """Add a page to *count*."""
    for meta in metas:
        if _is_selected(meta, snapshot, state.ring) and not isinstance(
            kinds.role(count.resource, meta), Outsider
        ):
            count.objects += 1
            _sort(count, meta, state)
            _note_writers(count, meta, state.ring)


def _is_selected(meta: DatedMeta, snapshot: Snapshot, ring: Ring) -> bool:
    """Whether the ring selects the object's namespace. Where namespaces are not known, its label says so."""
    if ring.spec.namespace_selector is not None and meta.namespace and snapshot.namespaces is None:
        return ring.keys.shard in meta.labels
    return snapshot.selects(ring, meta.namespace)


def _sort(count: ResourceCount, meta: DatedMeta, state: RingState) -> None:
    keys = state.ring.keys
    owner, drain = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain)
    counted = owner if owner in count.owners or len(count.owners) < MAX_NAMES else OTHER_NAMES
    count.owners[counted] += 1
    if counted not in count.one_of:
        count.one_of[counted] = named(count.resource, meta)
    trouble = trouble_of(owner, drain, state, kind=count.resource.group_resource)
    if trouble is None:
        return
    group = count.groups.setdefault((trouble, counted), Group())
    group.count += 1
    if len(group.samples) < SAMPLES:
        slim = DatedMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            creation_timestamp=meta.creation_timestamp,
            labels=dict(meta.labels),
            owner_references=meta.owner_references,
        )
        group.samples.append(Sample(count.resource, slim, owner, trouble, drain))


def trouble_of(owner: str, drain: str | None, state: RingState, *, kind: str) -> Trouble | None:
    """The trouble of an object of *kind* with these labels; a handoff is one, too."""
    if not owner:
        return Trouble.UNOWNED
    shard = state.by_name.get(owner)
    if shard is None:
        return Trouble.UNKNOWN
    if shard.holder and not shard.is_held:
        return Trouble.CONTESTED if shard.is_contested else Trouble.DEAD
    if shard.ignores(kind):
        return Trouble.UNWATCHED  # whatever is asked of that owner
    return Trouble.LEAVING if drain is not None else None


def _note_writers(count: ResourceCount, meta: DatedMeta, ring: Ring) -> None:
    """Note who wrote this object as controllers do: its status, or, if it is controlled, anything of it.

    Writes from before the ring's creation do not count.
    """
    owner, since = meta.labels.get(ring.keys.shard, ""), instant(ring.metadata.creation_timestamp)
    for entry in meta.managed_fields:
        if entry.has(ring.keys.shard):
            count.ours.add(entry.manager)
        if not owner or (count.is_main and not entry.is_of_status) or is_tool(entry.manager):
            continue
        at = entry.at
        if at is not None and since is not None and at < since:
            continue
        writer = count.writers.get(entry.manager)
        if writer is None:
            if len(count.writers) >= MAX_NAMES:
                continue
            writer = count.writers[entry.manager] = ForeignWriter()
        _note(writer, owner, named(count.resource, meta), at)


def _note(writer: ForeignWriter, owner: str, shown: str, at: datetime | None) -> None:
    writer.count += 1
    if len(writer.owners) < MAX_NAMES:
        writer.owners.add(owner)
    if at is not None and (writer.last is None or at >= writer.last):
        writer.last, writer.sample, writer.sample_owner = at, shown, owner
    elif not writer.sample:
        writer.sample, writer.sample_owner = shown, owner
