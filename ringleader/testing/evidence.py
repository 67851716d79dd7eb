"""All records of a fleet, and the results of both checks on them. Pure.

The demo's document, the fleet tests and `Fleet.overlaps` are views of `Evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from devcluster.plane import Write
from ringleader.testing.availability import (
    Demand,
    History,
    Movement,
    Span,
    Stretch,
    histories,
    movement,
    unattended,
    waiting,
)
from ringleader.testing.commands import FleetSpec
from ringleader.testing.journal import Begin, Life, Record
from ringleader.testing.ownership_checks import (
    ForeignWrite,
    Interval,
    Overlap,
    foreign_writes,
    intervals,
    lease_takes,
    members,
    overlaps,
    refused_writes,
    require_reconciles,
)


@dataclass(frozen=True)
class Evidence:
    """Journals, write log and process times, until *until*."""

    spec: FleetSpec
    records: Sequence[Record]
    writes: Sequence[Write]
    processes: Mapping[int, Sequence[Sequence[Span]]]
    """When each process could work, by pid; the kernel reuses pids."""
    replicas: frozenset[str]
    """Accounts of the shards."""
    demands: Sequence[Demand]
    since: float
    """When the ring was created: the checks begin here."""
    settled_since: float
    """When all objects were at their places for the first time: from then on each must have a working owner."""
    until: float

    @cached_property
    def judged(self) -> list[Write]:
        """The writes since the fleet was sharded."""
        return [write for write in self.writes if write.t >= self.since]

    @cached_property
    def intervals(self) -> list[Interval]:
        deaths = {life: self._spans_of(life)[-1][1] for life in self._lives}
        takes = lease_takes(self.writes, keys=self.spec.keys)
        return intervals(self.records, deaths=deaths, takes=takes)

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Result of the overlap check."""
        return overlaps(self.intervals)

    @cached_property
    def foreign_writes(self) -> list[ForeignWrite]:
        """Result of the write check."""
        return foreign_writes(
            self.judged,
            keys=self.spec.keys,
            resources=self.spec.resources,
            controlled={kind.group_resource for kind in self.spec.controlled},
            replicas=self.replicas,
        )

    @cached_property
    def refused_writes(self) -> list[Write]:
        return refused_writes(self.judged, resources=self.spec.resources, replicas=self.replicas)

    @cached_property
    def reconciles(self) -> int:
        return sum(isinstance(record, Begin) for record in self.records)

    @cached_property
    def member_of(self) -> dict[str, str]:
        return members(self.writes, keys=self.spec.keys)

    @cached_property
    def histories(self) -> list[History]:
        resource = self.spec.resource.group_resource
        return list(histories(self.writes, keys=self.spec.keys, resource=resource).values())

    @cached_property
    def working(self) -> dict[str, list[Span]]:
        """When each shard could work: since its `Life` record, while its process ran and its Lease was not taken."""
        takes = lease_takes(self.writes, keys=self.spec.keys)
        found: dict[str, list[Span]] = {}
        for life in self._lives:
            spans = _clip(self._spans_of(life), begin=life.t, end=takes.get(life.shard, math.inf))
            found.setdefault(life.shard, []).extend(spans)
        return found

    @cached_property
    def _lives(self) -> list[Life]:
        return sorted((r for r in self.records if isinstance(r, Life)), key=lambda life: life.t)

    def _spans_of(self, life: Life) -> Sequence[Span]:
        """When the process that wrote *life* could work; for ever if its end was not seen."""
        of_that_pid = self.processes.get(life.pid, ())
        ended_later = (spans for spans in of_that_pid if spans[-1][1] >= life.t)
        return min(ended_later, key=lambda spans: spans[-1][1], default=[(life.t, math.inf)])

    @cached_property
    def longest_unattended(self) -> Stretch | None:
        """The longest time an object had no working owner, or its update was not reconciled."""
        deleted = {history.uid for history in self.histories if history.deleted_at < math.inf}
        wanted = [
            demand for demand in self.demands if demand.t >= self.settled_since and demand.uid not in deleted
        ]
        stretches = [
            unattended(self.histories, working=self.working, since=self.settled_since, until=self.until),
            waiting(wanted, self.records, until=self.until),
        ]
        return max((s for s in stretches if s), key=lambda stretch: stretch.length_s, default=None)

    def movement(self, *, since: float, until: float) -> Movement:
        return movement(self.histories, member_of=self.member_of, since=since, until=until)

    def require_reconciles(self, at_least: int) -> None:
        """Raises: TooFewReconcilesError."""
        require_reconciles(self.intervals, at_least=at_least)


def _clip(spans: Sequence[Span], *, begin: float, end: float) -> list[Span]:
    clipped = [(max(from_, begin), min(to, end)) for from_, to in spans]
    return [span for span in clipped if span[0] < span[1]]
