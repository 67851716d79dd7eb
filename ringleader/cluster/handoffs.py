"""Handoffs in flight, the oldest first: objects that carry the drain label, and who owes an answer.

The API server selects them by label: the list costs what is in flight, not what exists. Reads only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ringleader.cluster.managed_fields import dated_meta, seconds_since
from ringleader.cluster.object_causes import is_overdue
from ringleader.cluster.objects import note_unserved, object_pages, ring_kinds
from ringleader.cluster.placement import RELEASE
from ringleader.output import Table, age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.reader import ClusterReader
    from ringleader.cluster.snapshot import RingState, Snapshot


class HandoffRow(msgspec.Struct, rename="camel"):
    """One object that its owner is asked to hand over; *to* is empty if it is to be released."""

    ring: str
    object: str
    owner: str
    to: str
    since_seconds: float | None
    note: str


async def read_handoffs(
    reader: ClusterReader, discovery: Discovery, snapshot: Snapshot, state: RingState
) -> list[HandoffRow]:
    """The handoffs of one ring, the oldest first. Raises KubeError."""
    found: list[HandoffRow] = []
    kinds, selector = await ring_kinds(discovery, state.ring), state.ring.keys.drain
    note_unserved(state.ring, kinds)
    pages = object_pages(reader.client, kinds.resources, label_selector=selector, timeout_s=reader.timeout_s)
    async for resource, objects in pages:
        found += [_row(snapshot, state, resource.group_resource, each.raw) for each in objects]
    return oldest_first(found)


def oldest_first(found: Sequence[HandoffRow]) -> list[HandoffRow]:
    return sorted(found, key=lambda each: -(each.since_seconds or 0.0))


def _row(snapshot: Snapshot, state: RingState, resource: str, raw: bytes) -> HandoffRow:
    meta, keys = dated_meta(raw), state.ring.keys
    owner, to = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain, "")
    entry = meta.label_written(keys.drain)
    since_s = seconds_since(entry.time, snapshot.now) if entry is not None else None
    live = {shard.name for shard in state.shards if shard.is_live}
    notes = []
    if owner not in live:
        notes.append("owner is dead")
    elif is_overdue(state.ring, owner, since_s):
        notes.append("late")
    if to and to not in live:
        notes.append("target is dead")
    return HandoffRow(state.name, f"{resource}/{meta.key}", owner, to, since_s, ", ".join(notes))


def handoff_lines(found: Sequence[HandoffRow], *, limit: int, is_wide: bool = False) -> list[str]:
    """A table of at most *limit* handoffs, and who owes how many."""
    if not found:
        return ["no handoff is in flight"]
    rows = [
        [
            each.object,
            each.ring,
            each.owner or "-",
            each.to or RELEASE,
            age(each.since_seconds),
            each.note or "-",
        ]
        for each in found[:limit]
    ]
    table = Table(("OBJECT", "RING", "FROM", "TO", "SINCE", "NOTE"), rows, wide=("RING",))
    owed = Counter(each.owner for each in found)
    text = ", ".join(f"{owner or 'none'} {count:,}" for owner, count in owed.most_common(5))
    more = [f"... and {len(found) - limit:,} more (--limit {len(found)})"] if len(found) > limit else []
    total = f"{len(found):,} in flight; owed by {text}{', ...' if len(owed) > 5 else ''}"
    return [*table.lines(is_wide=is_wide), *more, total]
