"""Check of objects that replicas report as unfit for their controller's model: an Event each (docs/errors.md).

Owns the reading and the judgement: an object that was changed after the report is not told, for its owner reports it
again if it still does not fit. Events last as long as the API server keeps them: an hour by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kubeio.errors import Forbidden, NotFound
from ringleader.doctor.checks import Check, Told, error
from ringleader.doctor.seen import Item, UnfitReport, instant, named
from ringleader.inspect.cluster.happenings import is_ours, read_happenings
from ringleader.output import age

if TYPE_CHECKING:
    from ringleader.doctor.reader import Reader
    from ringleader.doctor.seen import RingSeen, Seen, Tally, WrittenMeta
    from ringleader.inspect.cluster.happenings import ClusterEvent

REASON: Final = "Unfit"
MOST: Final = 200
"""Newest reports that are looked at, each by one GET."""


async def read_unfit(reader: Reader) -> None:
    """Fill `Seen.unfit` from the Events of the cluster."""
    if not reader.seen.rings:
        return

    def wanted(seen: ClusterEvent) -> bool:
        return seen.reason == REASON and is_ours(seen)

    found = read_happenings(
        reader.client, wanted=wanted, reason=REASON, most=MOST, timeout_s=reader.timeout_s
    )
    newest = {seen.uid: seen for seen in reversed(await reader.attempt("events", found) or [])}
    reports = sorted(newest.values(), reverse=True)

    told = await reader.each(reports, partial(_unfit, reader))
    reader.seen.unfit = [each for each in told if each is not None]


async def _unfit(reader: Reader, report: ClusterEvent) -> UnfitReport | None:
    """The object that *report* is about, if it is as it was then, and some ring's."""
    for ring, tally in _places(reader, report):
        try:
            found = await reader.client.get(
                tally.resource,
                report.name,
                namespace=report.namespace,
                type=Item,
                metadata_only=True,
                timeout_s=reader.timeout_s,
            )
        except (NotFound, Forbidden):
            continue
        meta = found.metadata
        if meta.uid != report.uid or ring.ring.keys.shard not in meta.labels or _is_newer(meta, report):
            continue
        shown = named(tally.resource, meta)
        return UnfitReport(shown, ring.name, report.note, report.reporter, instant(report.last_seen))
    return None


def _places(reader: Reader, report: ClusterEvent) -> list[tuple[RingSeen, Tally]]:
    return [
        (ring, tally)
        for ring in reader.seen.rings
        for tally in ring.tallies
        if tally.resource.kind == report.kind
    ]


def _is_newer(meta: WrittenMeta, report: ClusterEvent) -> bool:
    """Whether managedFields tell of a change of the object after *report*."""
    reported_at = instant(report.last_seen)
    changes = [entry.at for entry in meta.managed_fields if entry.at is not None]
    return reported_at is not None and any(at > reported_at for at in changes)


def judge_unfit(seen: Seen) -> Iterator[Told]:
    """Every object fits its controller's model, as far as Events tell."""
    for each in seen.unfit:
        since = (seen.now - each.reported_at).total_seconds() if each.reported_at else None
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
    lambda seen: "no replica reports an object that does not fit its model",
    needs=("rings", "events", "objects"),
)
