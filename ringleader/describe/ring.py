"""One ring: its cause, its members, handoffs in flight, and its last Events. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import KubeError
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.cluster.causes import Cause, ring_causes
from ringleader.cluster.events import ClusterEvent, read_events
from ringleader.cluster.handoffs import HandoffRow, handoff_lines, read_handoffs
from ringleader.cluster.managed_fields import seconds_since
from ringleader.describe.object_view import event_rows, first_line, sharder_text
from ringleader.output import Table, age

if TYPE_CHECKING:
    from datetime import datetime

    from ringleader.cluster.reader import ClusterReader
    from ringleader.cluster.snapshot import RingState

RING_KINDS: Final = ("ring", "rings", "controllerring", "controllerrings", "controllerrings.ringleader.dev")
EVENTS: Final = 10
HANDOFFS: Final = 10


class ShardRow(msgspec.Struct, rename="camel"):
    """One shard of a ring."""

    member: str
    shard: str
    state: str
    is_active: bool
    is_silent: bool
    lease_age_seconds: float | None
    objects: int | None
    pod: str


class ConditionRow(msgspec.Struct, rename="camel"):
    """One condition of the ring's status."""

    type: str
    status: str
    reason: str
    message: str
    since_seconds: float | None


class RingDescription(msgspec.Struct, rename="camel"):
    """The JSON document of one ring. *causes*: why objects wait; empty if none does."""

    ring: str
    causes: list[Cause]
    resources: list[str]
    lease_namespace: str
    key: str
    sharder: str
    conditions: list[ConditionRow]
    shards: list[ShardRow]
    handoffs: list[HandoffRow] | None
    """None: they could not be read."""
    events: list[ClusterEvent]
    unread: list[str]
    paused: bool = False
    releasing: bool = False
    """The ring is being deleted."""
    refusal: str = ""

    @property
    def is_wrong(self) -> bool:
        return any(cause.is_wrong for cause in self.causes)


async def read_ring(reader: ClusterReader, name: str) -> tuple[RingDescription, datetime]:
    """The ring *name*, and the time of the description. Raises: InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    snapshot = (await reader.snapshot(name, reads_namespaces=False)).require("rings", "leases")
    state, unread = snapshot.of(name), [gap.summary for gap in snapshot.gaps.values()]
    handoffs: list[HandoffRow] | None = None
    events: list[ClusterEvent] = []
    try:
        handoffs = await read_handoffs(reader, Discovery(reader.client), snapshot, state)
    except KubeError as error:
        unread.append(f"handoffs: {failure(error).message}")
    try:
        events = await _events(reader, name)
    except KubeError as error:
        unread.append(f"events: {failure(error).message}")
    ring = state.ring
    conditions = (ring.condition(str(each.get("type"))) for each in ring.status.get("conditions") or [])
    types = [str(each.get("type")) for each in ring.status.get("conditions") or []]
    return (
        RingDescription(
            ring=name,
            causes=ring_causes(snapshot, state),
            resources=[str(kind) for kind in ring.kinds],
            lease_namespace=ring.spec.lease_namespace,
            key=str(ring.spec.key),
            sharder=sharder_text(snapshot),
            conditions=[
                ConditionRow(
                    kind, each.status, each.reason, each.message, seconds_since(each.since, snapshot.now)
                )
                for kind, each in zip(types, conditions, strict=True)
            ],
            shards=_shards(state),
            handoffs=handoffs,
            events=events,
            unread=unread,
            paused=ring.spec.paused,
            releasing=ring.is_deleted,
            refusal=ring.refusal,
        ),
        snapshot.now,
    )


def _shards(state: RingState) -> list[ShardRow]:
    return [
        ShardRow(
            shard.member,
            shard.name,
            shard.state,
            shard.is_active,
            shard.is_silent,
            shard.age_s,
            shard.count(state.ring.mains),
            "/".join(shard.pod),
        )
        for shard in state.shards
    ]


async def _events(reader: ClusterReader, name: str) -> list[ClusterEvent]:
    return await read_events(
        reader.client,
        lambda event: event.kind == CONTROLLER_RINGS.kind and event.name == name,
        about=name,
        limit=EVENTS,
        timeout_s=reader.timeout_s,
    )


def lines(described: RingDescription, *, now: datetime, is_wide: bool) -> list[str]:
    """The description for people; its first line names the ring and the cause."""
    subject = f"controllerring/{described.ring}"
    active = sum(each.is_active for each in described.shards)
    well = Cause("Well", f"is well: {active} members share its objects", is_wrong=False)
    if described.releasing:
        well = Cause("Releasing", "is being deleted: its objects are given up", is_wrong=False)
    first, *further = described.causes or [well]
    if described.causes:
        first = msgspec.structs.replace(first, text=f"waits: {first.text}")
    rows = [("do", first.remedy)] if first.remedy else []
    for cause in further:
        rows += [("also", cause.text), ("do", cause.remedy)]
    rows += [
        ("objects", ", ".join(described.resources)),
        ("leases", f"namespace {described.lease_namespace or '-'}"),
        ("key", described.key),
        *([("paused", "nothing moves between live shards")] if described.paused else []),
        ("sharder", described.sharder),
        *(
            ("status" if index == 0 else "", _condition(each))
            for index, each in enumerate(described.conditions)
        ),
        *event_rows(described.events, now),
        *(("unread", unread) for unread in described.unread),
    ]
    table = Table(
        ("MEMBER", "SHARD", "STATE", "ACTIVE", "LEASE AGE", "OBJECTS", "POD"),
        [
            [
                each.member,
                each.shard,
                f"{each.state}, silent" if each.is_silent else each.state,
                "yes" if each.is_active else "no",
                age(each.lease_age_seconds),
                "-" if each.objects is None else f"{each.objects:,}",
                each.pod,
            ]
            for each in described.shards
        ],
        wide=("POD",),
    )
    handoffs = (
        ["handoffs in flight: not read"]
        if described.handoffs is None
        else handoff_lines(described.handoffs, limit=HANDOFFS, is_wide=is_wide)
    )
    return [
        first_line(subject, first),
        *(f"{name:<9}{text}" for name, text in rows),
        "",
        *(table.lines(is_wide=is_wide) if described.shards else ["no shard has a Lease"]),
        "",
        *handoffs,
    ]


def _condition(each: ConditionRow) -> str:
    reason = f" ({each.reason})" if each.reason else ""
    message = f": {each.message}" if each.message else ""
    return f"{each.type} {each.status}{reason} for {age(each.since_seconds)}{message}"
