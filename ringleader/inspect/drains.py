"""`ringleader drains [RING]`: handoffs in flight, the oldest first, and by whom they are owed.

Owns the list and its forms. Asks for what carries the drain label only, so it costs what is in flight, not what exists.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kubeio.clock import SystemClock
from kubeio.decoding import decode_pruned
from ringleader.inspect.cluster.dates import HasDatedMeta, seconds_since
from ringleader.inspect.cluster.reading import named_ring, read_ahead, read_lives, read_rings
from ringleader.inspect.cluster.terms import RingDocument, read_terms
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.inspect.cluster.rings import Life, Ring

RELEASE = "(release)"
_decode = msgspec.json.Decoder(HasDatedMeta).decode


class HandoffRow(msgspec.Struct, rename="camel"):
    """One object that its owner is asked to pass on; *to* is empty if it is to be given up."""

    ring: str
    object: str
    owner: str
    to: str
    since_seconds: float | None
    note: str


def run_drains(where: ConnectionOptions, *, ring: str | None, most: int, form: Form | None) -> int:
    """The command."""

    async def read(client: Client, _: object) -> list[HandoffRow]:
        from kubeio.rest.discovery import Discovery

        rings = await read_rings(client, timeout_s=where.timeout_s)
        chosen = rings if ring is None else [named_ring(rings, ring)]
        discovery = Discovery(client)
        found = [
            each
            for one in chosen
            for each in await read_handoffs(client, discovery, one, timeout_s=where.timeout_s)
        ]
        return sorted(found, key=lambda each: -(each.since_seconds or 0.0))

    found = connected(where, read)
    match form:
        case Form.JSON | Form.YAML:
            print_document({"drains": found}, form=form)
        case Form.NAME:
            for each in found:
                print_line(each.object)
        case _:
            _print(found, most, form)
    return 0


async def read_handoffs(
    client: Client, discovery: Discovery, ring: Ring, *, timeout_s: float
) -> list[HandoffRow]:
    """What of *ring* is in flight now. Raises KubeError."""
    from ringleader.inspect.cluster.keys import ring_kinds

    terms = await read_terms(client, ring.name, timeout_s=timeout_s)
    judge = _Judge(ring, await read_lives(client, ring), terms, now=SystemClock().wall())
    found: list[HandoffRow] = []
    for resource in (await ring_kinds(discovery, ring)).resources:
        pages = read_ahead(client, resource, label_selector=ring.keys.drain, timeout_s=timeout_s)
        async for page in pages:
            found += [judge.handoff(resource.group_resource, obj.raw) for obj in page.objects]
    return found


class _Judge:
    """What is to be said of handoffs of *ring* as its Leases and its status show it."""

    def __init__(self, ring: Ring, lives: Sequence[Life], terms: RingDocument, *, now: datetime) -> None:
        self._ring = ring
        self._live = {life.shard for life in lives if life.is_live}
        self._limit_s = terms.spec.drain_timeout_s if terms.spec is not None else 60.0
        stuck = terms.condition("DrainStuck")
        self._stuck = str(stuck.get("message")) if stuck.get("status") == "True" else ""
        self._now = now

    def handoff(self, resource: str, raw: bytes) -> HandoffRow:
        """The handoff of the object of *resource* with metadata *raw*."""
        meta, keys = decode_pruned(_decode, raw).metadata, self._ring.keys
        owner, to = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain, "")
        entry = meta.label_written(keys.drain)
        since_s = seconds_since(entry.time, self._now) if entry is not None else None
        notes = []
        if owner not in self._live:
            notes.append("owner is dead")
        elif (since_s or 0.0) > self._limit_s or f"{owner} (" in self._stuck:
            notes.append("late")
        if to and to not in self._live:
            notes.append("target is dead")
        return HandoffRow(self._ring.name, f"{resource}/{meta.key}", owner, to, since_s, ", ".join(notes))


def _print(found: Sequence[HandoffRow], most: int, form: Form | None) -> None:
    if not found:
        print_line("nothing is in flight")
        return
    rows = [
        [
            each.object,
            each.ring,
            each.owner or "-",
            each.to or RELEASE,
            age(each.since_seconds),
            each.note or "-",
        ]
        for each in found[:most]
    ]
    print_table(Table(("OBJECT", "RING", "FROM", "TO", "SINCE", "NOTE"), rows, wide=("RING",)), form=form)
    if len(found) > most:
        print_line(f"... and {len(found) - most:,} more (--most {len(found)})")
    owed = Counter(each.owner for each in found)
    told = ", ".join(f"{owner or 'nobody'} {count:,}" for owner, count in owed.most_common(5))
    print_line()
    print_line(f"{len(found):,} in flight; owed by {told}{', ...' if len(owed) > 5 else ''}")
