"""One object as a document, and as lines for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ring import HASH_SPACE
from ringleader.cluster.causes import Cause, unworked
from ringleader.cluster.events import ClusterEvent
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.placement import Row
from ringleader.output import age
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from datetime import datetime

    from kubeio.models import Meta
    from ringleader.cluster.object_state import ObjectState
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.snapshot import Snapshot
    from ringleader.describe.object import Found

Rows = list[tuple[str, str]]


class ObjectDescription(msgspec.Struct, rename="camel"):
    """The JSON document of one object."""

    object: str
    cause: Cause
    placement: Row
    key_from: str
    why: list[str]
    """Steps of the hash ring to the desired member."""
    arc: str
    label: str
    lease: str
    working: str
    sharder: str
    events: list[ClusterEvent]
    unread: list[str]


def describe(found: Found) -> ObjectDescription:
    """The document of *found*."""
    return ObjectDescription(
        object=found.name,
        cause=found.cause,
        placement=found.state.row,
        key_from=_key_source(found.state),
        why=why_desired(found.state),
        arc=_arc(found.state),
        label=_label(found.state),
        lease=_lease(found.state),
        working=_working(found),
        sharder=sharder_text(found.state.snapshot),
        events=found.events,
        unread=found.unread,
    )


def why_desired(obj: ObjectState) -> list[str]:
    """Steps of the hash ring to the desired member."""
    hashed, main = obj.state.hash_rings.of(obj.row.main), obj.row.main
    if not len(hashed):
        active = obj.state.active.values()
        if active and not any(shard.works(main) for shard in active):
            return [f"{unworked(obj.ring.name, main)}: such objects wait"]
        return ["no member is on the ring: no shard of it is live"]
    found = hashed.explain(obj.row.key)
    first = f"the first token at or after the hash is one of {found.token_member}"
    if not found.passed:
        return [first]
    passed = f"passed on clockwise, because full: {', '.join(found.passed)}"
    return [first, passed, f"{found.owner} is the next with room"]


def _arc(obj: ObjectState) -> str:
    """The part of the hash space that the object's hash lies in."""
    hashed = obj.state.hash_rings.of(obj.row.main)
    if not obj.row.hash or not len(hashed):
        return ""
    position, before = int(obj.row.hash, 16), -1
    for end, owner in hashed.arcs():
        if position <= end:
            size = (end - before) / HASH_SPACE
            return f"{before + 1:016x} to {end:016x} of {owner}, {size:.4%} of the ring"
        before = end
    return ""


def _label(obj: ObjectState) -> str:
    """The writer of the owner label, and its age."""
    if not obj.row.owner:
        return f"no label {obj.keys.shard}"
    entry = obj.meta.label_written(obj.keys.shard)
    if entry is None:
        return f"{obj.row.owner}; the server does not say when it was written"
    return f"{obj.row.owner}, written {age(obj.since(entry.time))} ago by {entry.manager or 'a nameless manager'}"


def _lease(obj: ObjectState) -> str:
    lease = obj.owner.lease if obj.owner is not None else obj.foreign_lease
    if lease is None:
        return "none of the owner's name" if obj.row.owner else "-"
    holder = lease.spec.holder_identity or "none"
    held = "itself" if holder == lease.metadata.name else holder
    renewed, lasts = age(obj.since(lease.spec.renew_time)), lease.spec.lease_duration_seconds or "?"
    contested = ", contested" if obj.keys.contested in lease.metadata.annotations else ""
    return f"held by {held}, renewed {renewed} ago, lasts {lasts} s{contested}"


def _working(found: Found) -> str:
    """The owner's own answer."""
    asked, obj = found.asked, found.state
    if asked is None:
        if obj.owner is None or not obj.owner.is_live:
            return "-"
        return "not asked: --endpoint URL (with kubectl port-forward) asks it"
    if asked.is_of_another(obj.row.owner):
        pod = obj.row.owner_member
        return f"the endpoint is {asked.shard}'s, not {obj.row.owner}'s: forward the port of pod {pod}"
    if asked.page is None:
        return asked.problem or "its watch has never shown the object"
    page = asked.page
    parts = [
        f"since {age(obj.since(page.running_since))}" if page.running_since else "",
        f"queued {age(obj.since(page.queued_since))} ago" if page.queued_since else "",
        f"failed {page.failures} times in a row" if page.failures else "",
        f"next try {page.next_try}" if page.next_try else "",
    ]
    if (last := page.last_outcome) is not None:
        ended = age(obj.since(last.at))
        parts.append(f"last outcome {last.outcome} {ended} ago, took {last.took_seconds:.3g} s")
    return ", ".join(part for part in parts if part) or "it knows the object and has nothing to do"


def sharder_text(snapshot: Snapshot) -> str:
    """The leader of the sharders, and its Lease."""
    leadership = snapshot.leadership
    if not leadership.is_known:
        return "not known: no right to list Leases in the whole cluster"
    newest = leadership.newest
    if newest is None:
        return "none: no Lease ringleader-sharder in any namespace"
    leads = "leads" if newest.leads else "does not lead any more"
    return f"{newest.holder or 'no sharder'} {leads} (Lease {newest.where}, renewed {age(newest.age_s)} ago)"


def lines(described: ObjectDescription, *, now: datetime) -> list[str]:
    """The description for people; its first line names the object and the cause."""
    at, cause = described.placement, described.cause
    rows: Rows = [("do", cause.remedy)] if cause.remedy else []
    rows += [("evidence", each) for each in cause.evidence]
    rows += [
        ("ring", at.ring),
        ("owner", f"{at.owner or 'none'} ({at.owner_state})"),
        ("desired", f"{at.desired_shard or 'none'} (member {at.desired_member or 'none'})"),
        ("label", described.label),
        ("lease", described.lease),
        ("drain", "none" if at.drain_to is None else at.drain_to or "release"),
        ("key", f"{at.key} ({described.key_from})"),
        ("hash", f"{at.hash or '-'} (murmur3, first 64 bits)"),
        ("token", at.token or "-"),
        ("arc", described.arc or "-"),
        *(("why" if index == 0 else "", reason) for index, reason in enumerate(described.why)),
        ("working", described.working),
        ("sharder", described.sharder),
        *event_rows(described.events, now),
        *(("unread", unread) for unread in described.unread),
    ]
    return [first_line(described.object, cause), *(f"{name:<9}{text}" for name, text in rows)]


def first_line(name: str, cause: Cause) -> str:
    """*name*, its cause, and since when."""
    since = cause.since_seconds
    return f"{name} {cause.text}{f' (for {age(since)})' if since is not None else ''}"


def event_rows(events: list[ClusterEvent], now: datetime) -> Rows:
    """A row for each Event, the newest first."""
    return [("events" if index == 0 else "", _event(event, now)) for index, event in enumerate(events)]


def _event(event: ClusterEvent, now: datetime) -> str:
    times = f" x{event.count}" if event.count > 1 else ""
    note = " ".join(event.note.split())
    return f"{age(seconds_since(event.last_seen, now))} ago {event.type} {event.reason}{times}: {note}"


# ---- keys -----------------------------------------------------------------------------------------------------


def _key_source(obj: ObjectState) -> str:
    """Where the key of *obj* comes from."""
    if obj.controller is None:
        return _source_of_root(obj.ring, obj.meta, obj.row.key)
    return _source_of_controlled(obj.ring, obj.meta)


def _source_of_root(ring: Ring, meta: Meta, key: str) -> str:
    match ring.spec.key:
        case KeyKind.NAMESPACE if meta.namespace:
            return "its namespace"
        case KeyKind.LABEL if key.startswith("="):
            return f"the value of its label {ring.spec.key_label}"
        case KeyKind.LABEL:
            return f"group, namespace and name of the object itself: it has no label {ring.spec.key_label}"
        case _:
            return "group, namespace and name of the object itself"


def _source_of_controlled(ring: Ring, meta: Meta) -> str:
    controller = meta.controller
    above = f"{controller.kind} {controller.name}" if controller is not None else ""
    match ring.spec.key:
        case KeyKind.NAMESPACE:
            return f"as its controller, {above}"
        case KeyKind.LABEL:
            return f"label {ring.spec.key_label} of its controller, {above}"
        case KeyKind.OWNER:
            return f"group, namespace and name of its root owner, above {above}"
        case _:
            return f"group, namespace and name of its controller, {above}"
