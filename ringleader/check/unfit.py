"""Check of objects that replicas report as unfit for their controller's model: an Event each (docs/errors.md).

Owns the reading and the judgement: an object that was changed after the report is left out: its owner reports it
again if it still does not fit. Events last as long as the API server keeps them: an hour by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kubeio.errors import Forbidden, NotFound
from ringleader.check.evidence import UnfitReport
from ringleader.check.findings import Check, Finding, error
from ringleader.cluster.events import is_ours, read_events
from ringleader.cluster.managed_fields import DatedMeta, HasDatedMeta, instant
from ringleader.cluster.objects import named
from ringleader.output import age

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence, ResourceCount, RingEvidence
    from ringleader.cluster.events import ClusterEvent
    from ringleader.cluster.reader import ClusterReader

REASON: Final = "Unfit"
MOST: Final = 200
"""Newest reports that are looked at, each by one GET."""


async def read_unfit(reader: ClusterReader, evidence: Evidence) -> None:
    """Fill `Evidence.unfit` from the Events of the cluster."""
    if not evidence.rings:
        return

    def is_wanted(event: ClusterEvent) -> bool:
        return event.reason == REASON and is_ours(event)

    found = read_events(reader.client, is_wanted, reason=REASON, limit=MOST, timeout_s=reader.timeout_s)
    newest = {event.uid: event for event in reversed(await reader.attempt("events", found) or [])}
    reports = sorted(newest.values(), reverse=True)
    checked = await reader.each(reports, partial(_unfit, reader, evidence))
    evidence.unfit = [each for each in checked if each is not None]


async def _unfit(reader: ClusterReader, evidence: Evidence, report: ClusterEvent) -> UnfitReport | None:
    """The object that *report* is about, if it is as it was then, and some ring's."""
    for ring, count in _places(evidence, report):
        try:
            found = await reader.client.get(
                count.resource,
                report.name,
                namespace=report.namespace,
                type=HasDatedMeta,
                metadata_only=True,
                timeout_s=reader.timeout_s,
            )
        except (NotFound, Forbidden):
            continue
        meta = found.metadata
        if meta.uid != report.uid or ring.ring.keys.shard not in meta.labels or _is_newer(meta, report):
            continue
        shown = named(count.resource, meta)
        return UnfitReport(shown, ring.name, report.note, report.reporter, instant(report.last_seen))
    return None


def _places(evidence: Evidence, report: ClusterEvent) -> list[tuple[RingEvidence, ResourceCount]]:
    return [
        (ring, count)
        for ring in evidence.rings
        for count in ring.counts
        if count.resource.kind == report.kind
    ]


def _is_newer(meta: DatedMeta, report: ClusterEvent) -> bool:
    """Whether managedFields show a change of the object after *report*."""
    reported_at = instant(report.last_seen)
    changes = [entry.at for entry in meta.managed_fields if entry.at is not None]
    return reported_at is not None and any(at > reported_at for at in changes)


def judge_unfit(evidence: Evidence) -> Iterator[Finding]:
    """Every object fits its controller's model, as far as Events show."""
    for each in evidence.unfit:
        since = (evidence.now - each.reported_at).total_seconds() if each.reported_at else None
        yield error(
            f"{each.named} is not reconciled: it does not fit its controller's model: {each.note}",
            ring=each.ring,
            about=each.named,
            evidence=[f"Event {REASON} of {each.reporter}, {age(since)} ago"],
            remedy="correct the object, or give the model's field a default; it is tried again when it changes",
        )


CHECK = Check(
    "unfit",
    "objects that do not fit their controller's model",
    judge_unfit,
    lambda evidence: "no replica reports an object that does not fit its model",
    needs=("rings", "events", "objects"),
)
