"""`ringleader drains [RING]`: handoffs in flight, the oldest first, and by whom they are owed.

Owns the list and its forms. Asks for what carries the drain label only, so it costs what is in flight, not what exists.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kubeio.clock import SystemClock
from ringleader.inspect.dates import HasDatedMeta, seconds_since
from ringleader.inspect.reading import named_ring, read_ahead, read_lives, read_rings
from ringleader.inspect.terms import Terms, read_terms
from ringleader.options import Connection, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.labels import RingKeys
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.inspect.rings import Life, Ring

RELEASE = "(release)"
_decode = msgspec.json.Decoder(HasDatedMeta).decode


class Handoff(msgspec.Struct, rename="camel"):
    """One object that its owner is asked to pass on; *to* is empty if it is to be given up."""

    ring: str
    object: str
    owner: str
    to: str
    since_seconds: float | None
    note: str


def run_drains(where: Connection, *, ring: str | None, most: int, form: Form | None) -> int:
    """The command."""

    async def read(client: Client, _: object) -> list[Handoff]:
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
) -> list[Handoff]:
    """What of *ring* is in flight now. Raises KubeError."""
    from ringleader.inspect.where import ring_kinds

    lives = await read_lives(client, ring)
    terms = await read_terms(client, ring.name, timeout_s=timeout_s)
    now = SystemClock().wall()
    found: list[Handoff] = []
    for resource in (await ring_kinds(discovery, ring)).resources:
        pages = read_ahead(client, resource, label_selector=ring.keys.drain, timeout_s=timeout_s)
        async for page in pages:
            for obj in page.objects:
                shown = f"{resource.group_resource}/{obj.meta.key}"
                found.append(handoff(ring.name, shown, obj.raw, ring.keys, lives, terms, now=now))
    return found


def handoff(
    ring: str,
    shown: str,
    raw: bytes,
    keys: RingKeys,
    lives: Sequence[Life],
    terms: Terms,
    *,
    now: datetime,
) -> Handoff:
    """The handoff of the object with metadata *raw*, and what is to be said of it."""
    meta = _decode(raw).metadata
    owner, to = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain, "")
    entry = meta.label_written(keys.drain)
    since_s = seconds_since(entry.time, now) if entry is not None else None
    live = {life.shard for life in lives if life.is_live}
    limit_s = terms.spec.drain_timeout_s if terms.spec is not None else 60.0
    stuck = terms.condition("DrainStuck")
    late = (since_s or 0.0) > limit_s or (
        stuck.get("status") == "True" and f"{owner} (" in str(stuck.get("message"))
    )
    notes = [
        "owner is dead" if owner not in live else "late" if late else "",
        "target is dead" if to and to not in live else "",
    ]
    return Handoff(ring, shown, owner, to, since_s, ", ".join(note for note in notes if note))


def _print(found: Sequence[Handoff], most: int, form: Form | None) -> None:
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
