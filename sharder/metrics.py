"""Metrics of the sharder; label values come from closed sets (ring names, decisions, states, reasons).

The only exception is `ringleader_handoffs_overdue`: it names shards, for as long as they are late. docs/metrics.md has
every metric. Filled by the components of each ring; the series of a ring are removed with it.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

from sharder.ringspec.spec import Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from sharder.writing.limiter import WriteLimiter

_PATCH_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_HANDOFF_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_ASSIGN_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class LimiterMetrics:
    """Gauges of the limiter of label patches, which all rings of a process share. Computed on each scrape."""

    def __init__(self, registry: CollectorRegistry, limiter: WriteLimiter) -> None:
        limit = Gauge(
            "ringleader_write_limit",
            "Label patches that may be under way at once, by pace.",
            ["pace"],
            registry=registry,
        )
        for pace in Pace:
            limit.labels(pace=pace.value).set_function(partial(limiter.allowed, pace))
        for name, text, read in (
            ("writes_in_flight", "Label patches under way.", lambda: limiter.in_flight),
            (
                "write_pause_seconds",
                "Seconds until a patch may begin, as the API server asked.",
                limiter.paused_s,
            ),
        ):
            Gauge(f"ringleader_{name}", text, registry=registry).set_function(read)


class SharderMetrics:
    """The sharder's collectors in one *registry*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        build = Gauge("ringleader_build_info", "1. Version of the sharder.", ["version"], registry=registry)
        build.labels(version=version("ringleader")).set(1)
        # what is written
        self.writes = self._counter(
            "object_writes", "Label writes to objects, by decision and outcome.", "kind", "outcome"
        )
        self.moves = self._counter(
            "moves", "Writes that assign an object, or ask for it, by reason.", "reason"
        )
        self.patch_s = self._histogram(
            "patch_seconds", "From sending a label patch to its answer.", "kind", buckets=_PATCH_S
        )
        self.assign_s = self._histogram(
            "assignment_seconds",
            "From seeing an object without an owner to its assignment.",
            buckets=_ASSIGN_S,
        )
        self.handoff_s = self._histogram(
            "handoff_seconds",
            "From asking an owner for an object to its answer.",
            buckets=_HANDOFF_S,
        )
        self.audit_found = self._counter(
            "audit_found", "Objects that the audit found without a watch having shown them.", "what"
        )
        self.audited = self._counter("audited_objects", "Objects that the audit looked at.")
        # what is still to be done
        self.unowned = self._gauge("unowned_objects", "Objects that wait for an owner.")
        self.oldest_unowned_s = self._gauge(
            "oldest_unowned_seconds", "How long the oldest object has waited for an owner."
        )
        self.misplaced = self._gauge(
            "misplaced_objects", "Objects not at their place that wait for room to be handed over."
        )
        self.in_flight = self._gauge("handoffs_in_flight", "Drains not answered yet.")
        self.overdue = self._gauge(
            "handoffs_overdue", "Drains past drainTimeoutSeconds, by the shard that owes them.", "shard"
        )
        self.events_dropped = self._counter("events_dropped", "Events that could not be written.")
        self.refused = self._gauge(
            "refused_objects",
            "Objects whose labels a policy, a webhook or a schema does not let anybody change.",
        )
        self.missing_rights = self._gauge(
            "missing_rights", "Rights on distributed resources that the API server refuses."
        )
        self.deferred_names = self._gauge(
            "deferred_names", "Names on objects that no shard ever had and that wait for care, up to 1,000."
        )
        self.ring_file_refused = self._gauge(
            "ring_file_refused", "1 while the ring file cannot be used and an older version of it is worked."
        )
        # the ring and its members
        self.condition = self._gauge(
            "ring_condition", "1 for the status that a condition of the ring has, else 0.", "type", "status"
        )
        self.objects = self._gauge(
            "ring_objects", "Main objects that have an owner, as the replicas count them."
        )
        self.paused = self._gauge(
            "ring_paused", "1 while the ring is paused: live owners keep their objects."
        )
        self.cordoned = self._gauge("members_cordoned", "Members of the ring's spec that are cordoned.")
        self.shards = self._gauge("shards", "Shards by the state of their Lease.", "state")
        self.state_changes = self._counter("shard_state_changes", "Leases that came into a state.", "state")
        self.ring_changes = self._counter("ring_changes", "Members that joined or left the ring.", "change")
        self.ring_version = self._gauge("ring_version", "Version of the ring this sharder works.")
        self.converged = self._gauge("ring_converged", "1 when a whole pass found every object at its place.")
        self.convergence_s = self._gauge(
            "last_convergence_seconds", "How long it took the last time until every object was at its place."
        )
        self.converged_at_s = self._gauge(
            "last_convergence_timestamp_seconds", "When that was, in seconds since 1970."
        )

    def set_conditions(self, ring: str, conditions: Mapping[str, bool]) -> None:
        """Export *conditions*, statuses by type, as all that *ring* has now."""
        self.condition.remove_by_labels({"ring": ring})
        for type_, is_true in conditions.items():
            for status in (True, False):
                self.condition.labels(ring=ring, type=type_, status=str(status)).set(is_true is status)

    def refuse(self, ring: str, conditions: Mapping[str, bool]) -> None:
        """*ring* is not worked, as *conditions* say: what was true of it before would stay. Counters go on."""
        for collector in vars(self).values():
            if isinstance(collector, Gauge) and collector is not self.ring_file_refused:
                collector.remove_by_labels({"ring": ring})
        self.set_conditions(ring, conditions)

    def forget(self, ring: str) -> None:
        """Drop every series of *ring*: it is gone."""
        for collector in vars(self).values():
            if isinstance(collector, Counter | Gauge | Histogram):
                collector.remove_by_labels({"ring": ring})

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"ringleader_{name}", text, ["ring", *labels], registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"ringleader_{name}", text, ["ring", *labels], registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"ringleader_{name}", text, ["ring", *labels], buckets=buckets, registry=self._registry
        )
