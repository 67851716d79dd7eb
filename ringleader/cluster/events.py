"""Kubernetes Events, newest first. A server that cannot select them by object or reason is read whole."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import BadRequest
from kubeio.resource import EVENTS

if TYPE_CHECKING:
    from kubeio.rest.client import Client

OURS: Final = ("ringleader.dev/",)
"""Beginnings of the names by which programs of Ringleader report Events."""


class Regarding(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Series(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    """Of events.k8s.io/v1; what older programs wrote stands in the deprecated fields."""

    event_time: str | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    regarding: Regarding = msgspec.field(default_factory=Regarding)
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: Series | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_count: int = 0


class ClusterEvent(msgspec.Struct, rename="camel", order=True):
    """One Event, with its repetitions."""

    last_seen: str
    type: str
    reason: str
    kind: str
    namespace: str
    name: str
    uid: str
    note: str
    count: int
    reporter: str


_decode = msgspec.json.Decoder(_Event).decode


async def read_events(
    client: Client,
    is_wanted: Callable[[ClusterEvent], bool],
    *,
    namespace: str = "",
    about: str = "",
    reason: str = "",
    limit: int,
    timeout_s: float,
) -> list[ClusterEvent]:
    """At most *limit* Events accepted by *is_wanted*, newest first.

    *about* (an object's name) and *reason* are asked of the server; *is_wanted* repeats them for servers that cannot
    select. Memory follows *limit*, not the number of Events. Raises KubeError.
    """
    named = {"regarding.name": about, "reason": reason}
    selector = ",".join(f"{field}={value}" for field, value in named.items() if value)
    try:
        return await _read(client, is_wanted, namespace, selector, limit=limit, timeout_s=timeout_s)
    except BadRequest:
        if not selector:
            raise
        return await _read(client, is_wanted, namespace, "", limit=limit, timeout_s=timeout_s)


async def _read(
    client: Client,
    is_wanted: Callable[[ClusterEvent], bool],
    namespace: str,
    selector: str,
    *,
    limit: int,
    timeout_s: float,
) -> list[ClusterEvent]:
    newest: list[ClusterEvent] = []
    pages = client.pages(EVENTS, namespace=namespace, field_selector=selector, timeout_s=timeout_s)
    async for page in pages:
        found = (event_of(obj.raw, created=obj.meta.creation_timestamp) for obj in page.objects)
        newest = heapq.nlargest(limit, [*newest, *filter(is_wanted, found)])
    return newest


def event_of(raw: bytes, *, created: str | None) -> ClusterEvent:
    """The Event in *raw*; *created* dates one that has no time of its own."""
    event = _decode(raw)
    series = event.series or Series()
    seen = series.last_observed_time or event.deprecated_last_timestamp or event.event_time or created or ""
    about = event.regarding
    return ClusterEvent(
        _same_form(seen),
        event.type,
        event.reason,
        about.kind,
        about.namespace,
        about.name,
        about.uid,
        event.note,
        max(series.count, event.deprecated_count, 1),
        event.reporting_controller,
    )


def is_ours(seen: ClusterEvent) -> bool:
    """Whether a sharder or a replica wrote it."""
    return seen.reporter.startswith(OURS)


def _same_form(instant: str) -> str:
    """*instant* in one form, so that text order is the order of time."""
    try:
        return datetime.fromisoformat(instant).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return instant
