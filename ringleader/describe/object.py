"""One object: its cause, and everything that led to it. Reads only; what may not be read is a gap, not an error."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubeio.errors import Forbidden, KubeError, NotFound
from kubeio.models import GroupResource, HasMeta, ObjectKey
from kubeio.observed import observed
from ring import HASH_SPACE
from ringleader.cluster.causes import Cause, Controller, ObjectState, cause_of, two_owners, unworked
from ringleader.cluster.debug_endpoint import DebugAnswer, at_url, in_pod
from ringleader.cluster.events import ClusterEvent, read_events
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.objects import Key, Row, read_key, read_object, resolve_kind, ring_kinds, row
from ringleader.cluster.ring import choose_ring
from ringleader.cluster.snapshot import ClusterReader, Snapshot
from ringleader.describe.work import cause_at_work, well
from ringleader.output import age
from sharder.planning.keys import Controlled

if TYPE_CHECKING:
    from datetime import datetime

    from kubeio.models import Lease, Meta
    from kubeio.resource import ApiResource
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.debug_endpoint import DebugEndpoint
    from ringleader.cluster.snapshot import RingState
    from sharder.planning.keys import RingKinds

EVENTS: Final = 5
_ENDPOINT_S: Final = 10.0
Rows = list[tuple[str, str]]


class EndpointOptions(NamedTuple):
    """Way to the owner's debug page: by *url*, or to its pod through the API server."""

    url: str | None = None
    pod_port: int | None = None


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


@dataclass(frozen=True, slots=True)
class Found:
    """An object with all that was read for it."""

    resource: ApiResource
    key: Key
    state: ObjectState
    observed: int | None = None
    """The generation that its status says is observed; None if it does not say."""
    asked: DebugAnswer | None = None
    """The answer of its owner; None: there is no live owner, or no way to it."""
    events: list[ClusterEvent] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.resource.group_resource}/{self.state.meta.key}"

    @property
    def cause(self) -> Cause:
        """The one cause that explains the object; that all is well, if nothing is off."""
        found = cause_of(self.state)
        if found is not None:
            return found
        at_work = cause_at_work(self.state, self.asked, self.observed)
        if at_work is not None and at_work.is_wrong:
            return at_work
        return two_owners(self.state) or at_work or well(self.state)


# ---- reading --------------------------------------------------------------------------------------------------


async def read_placed(
    reader: ClusterReader, discovery: Discovery, kind: str, key: ObjectKey, *, ring_name: str | None
) -> Found:
    """The object *key* of *kind*, where it is and belongs. Raises: InputError, KubeError."""
    snapshot = (await reader.snapshot()).require("rings")
    rings = [each.ring for each in snapshot.rings]
    resource = await resolve_kind(discovery, rings, kind)
    ring = choose_ring(rings, resource, ring_name)
    snapshot.require(f"leases:{ring.name}")
    state, client = snapshot.of(ring.name), reader.client
    meta = await read_object(client, resource, key, timeout_s=reader.timeout_s)
    kinds = await ring_kinds(discovery, ring)
    hashed = await read_key(client, kinds, ring, resource, meta)
    placed = row(state, resource.group_resource, meta, hashed.text, hashed.main)
    found = ObjectState(
        snapshot,
        state,
        placed,
        meta,
        controller=await read_above(reader, kinds, resource, meta, state),
        stranger=await read_stranger(reader, state, placed.owner),
        other_owners=_other_owners(snapshot, state, resource, meta),
    )
    return Found(resource, hashed, found)


def _other_owners(snapshot: Snapshot, state: RingState, resource: ApiResource, meta: Meta) -> dict[str, str]:
    """Owners in further rings of the same label domain, by ring."""
    kind = GroupResource(resource.group, resource.plural)
    return {
        other.name: meta.labels[other.ring.keys.shard]
        for other in snapshot.rings
        if other.name != state.name
        and other.ring.spec.label_domain == state.ring.spec.label_domain
        and kind in other.ring.kinds
        and other.ring.keys.shard in meta.labels
    }


async def read_above(
    reader: ClusterReader, kinds: RingKinds, resource: ApiResource, meta: Meta, state: RingState
) -> Controller | None:
    """The object that controls this one, if one of the ring does. Raises KubeError."""
    role = kinds.role(resource, meta)
    if not isinstance(role, Controlled):
        return None
    name = role.controller
    key = ObjectKey(name.namespace, name.name)
    shown = f"{name.resource.group_resource}/{key}"
    try:
        found = await reader.client.get(
            name.resource,
            name.name,
            namespace=name.namespace,
            type=HasMeta,
            metadata_only=True,
            timeout_s=reader.timeout_s,
        )
    except NotFound:
        return Controller(shown, key, exists=False)
    owner = found.metadata.labels.get(state.ring.keys.shard, "")
    return Controller(shown, key, owner, exists=found.metadata.uid == name.uid)


async def read_stranger(reader: ClusterReader, state: RingState, name: str) -> Lease | None:
    """The Lease called *name* where the ring's Leases are, if it is not the ring's."""
    from kubeio.leases.lease import Leases
    from kubeio.protocol import is_shard_name

    where = state.ring.spec.lease_namespace
    if not where or not is_shard_name(name) or name in state.by_name:
        return None
    try:
        return await Leases(reader.client, where, timeout_s=reader.timeout_s).get(name)
    except (NotFound, Forbidden):
        return None


async def read_found(
    reader: ClusterReader, kind: str, key: ObjectKey, *, ring_name: str | None, endpoint: EndpointOptions
) -> Found:
    """All that is known of the object *key* of *kind*. Raises: InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    placed = await read_placed(reader, Discovery(reader.client), kind, key, ring_name=ring_name)
    unread = [gap.summary for part, gap in placed.state.snapshot.gaps.items() if part == "namespaces"]
    asked = await _ask(reader, placed, endpoint)
    seen = await _observed(reader, placed)
    events: list[ClusterEvent] = []
    try:
        events = await _events(reader, placed.state.meta)
    except KubeError as error:
        unread.append(f"events: {error}")
    return Found(placed.resource, placed.key, placed.state, seen, asked, events, unread)


async def _observed(reader: ClusterReader, found: Found) -> int | None:
    """The generation in the object's status, for which it is read whole."""
    meta = found.state.meta
    try:
        raw = await reader.client.get(
            found.resource, meta.name, namespace=meta.namespace, type=bytes, timeout_s=reader.timeout_s
        )
    except NotFound:
        return None
    whole = observed(raw)
    return whole.generation if whole is not None else None


async def _ask(reader: ClusterReader, found: Found, options: EndpointOptions) -> DebugAnswer | None:
    """The owner's own answer about the object, if it lives and there is a way to it."""
    owner, above = found.state.owner, found.state.controller
    if owner is None or not owner.is_live:
        return None
    async with AsyncExitStack() as stack:
        if options.url is not None:
            at = at_url(options.url, timeout_s=min(reader.timeout_s, _ENDPOINT_S))
            endpoint: DebugEndpoint = await stack.enter_async_context(at)
        elif options.pod_port is not None:
            endpoint = in_pod(reader.client, owner.pod, port=options.pod_port, timeout_s=reader.timeout_s)
        else:
            return None
        return await endpoint.object_page(above.key if above is not None else found.state.meta.key)


async def _events(reader: ClusterReader, meta: Meta) -> list[ClusterEvent]:
    """The last Events about the object; of its namesakes that are gone none."""

    def is_wanted(event: ClusterEvent) -> bool:
        return event.name == meta.name and event.uid in ("", meta.uid)

    return await read_events(
        reader.client,
        is_wanted,
        namespace=meta.namespace,
        about=meta.name,
        limit=EVENTS,
        timeout_s=reader.timeout_s,
    )


# ---- showing --------------------------------------------------------------------------------------------------


def describe(found: Found) -> ObjectDescription:
    """The document of *found*."""
    return ObjectDescription(
        object=found.name,
        cause=found.cause,
        placement=found.state.row,
        key_from=found.key.source,
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
    lease = obj.owner.lease if obj.owner is not None else obj.stranger
    if lease is None:
        return "none of the owner's name" if obj.row.owner else "-"
    holder = lease.spec.holder_identity or "nobody"
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
        return asked.problem or "it has never seen the object"
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
    return f"{newest.holder or 'nobody'} {leads} (Lease {newest.where}, renewed {age(newest.age_s)} ago)"


def lines(described: ObjectDescription, *, now: datetime) -> list[str]:
    """The description for people; its first line names the object and the cause."""
    at, cause = described.placement, described.cause
    rows: Rows = [("do", cause.remedy)] if cause.remedy else []
    rows += [("seen", each) for each in cause.evidence]
    rows += [
        ("ring", at.ring),
        ("owner", f"{at.owner or 'nobody'} ({at.owner_state})"),
        ("desired", f"{at.desired_shard or 'nobody'} (member {at.desired_member or 'none'})"),
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
