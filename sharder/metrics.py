"""What the sharder counts; label values come from closed sets (ring names, decisions, states, reasons)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class SharderMetrics:
    """The sharder's collectors in one *registry*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter(
            "ringleader_object_writes",
            "Label writes to objects, by decision and outcome.",
            ["ring", "kind", "outcome"],
            registry=registry,
        )
        self.unowned = Gauge(
            "ringleader_unowned_objects", "Objects that wait for an owner.", ["ring"], registry=registry
        )
        self.oldest_unowned_s = Gauge(
            "ringleader_oldest_unowned_seconds",
            "How long the oldest object has waited for an owner.",
            ["ring"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "ringleader_handoffs_in_flight", "Drains not answered yet.", ["ring"], registry=registry
        )
        self.overdue = Gauge(
            "ringleader_handoffs_overdue",
            "Drains past drainTimeoutSeconds, by the shard that owes them.",
            ["ring", "shard"],
            registry=registry,
        )
        self.shards = Gauge(
            "ringleader_shards", "Shards by the state of their Lease.", ["ring", "state"], registry=registry
        )
        self.ring_version = Gauge(
            "ringleader_ring_version", "Version of the ring this sharder works.", ["ring"], registry=registry
        )
        self.converged = Gauge(
            "ringleader_ring_converged",
            "1 when a whole pass found every object at its place.",
            ["ring"],
            registry=registry,
        )
        self.assign_s = Histogram(
            "ringleader_assignment_seconds",
            "From seeing an object without an owner to its assignment.",
            ["ring"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
            registry=registry,
        )
        self.audit_found = Counter(
            "ringleader_audit_found",
            "Objects that an audit found without the watch having shown them.",
            ["ring"],
            registry=registry,
        )
