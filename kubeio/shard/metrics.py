"""Metrics that every shard has, whatever works its objects: its Lease, its place on the ring, what it owns."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Gauge


class ShardMetrics:
    """Metrics of the shards of *controller*; one instance per process and registry."""

    def __init__(self, registry: CollectorRegistry, *, controller: str) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["controller"], registry=registry).labels(controller)

        self._controller: Final = controller
        self._lease_age: Final = gauge(
            "ringleader_shard_lease_age_seconds", "Time since the last renewal was sent"
        )
        self._lease_duration: Final = gauge(
            "ringleader_shard_lease_duration_seconds", "Duration of the shard's Lease"
        )
        self._info: Final = Gauge(
            "ringleader_shard_info",
            "1. Joins the metrics of a replica with its ring, member and version",
            ["controller", "ring", "member", "version"],
            registry=registry,
        )
        self._objects: Final = Gauge(
            "ringleader_shard_objects", "Objects in the cache", ["controller", "resource"], registry=registry
        )

    def watch_lease(self, age_s: Callable[[], float], *, ring: str, member: str, duration_s: float) -> None:
        """Export the age of the Lease, which *age_s* returns, and which place on which ring it is for."""
        self._lease_age.set_function(age_s)
        self._lease_duration.set(duration_s)
        self._info.labels(self._controller, ring, member, version("ringleader")).set(1)

    def watch_objects(self, resource: str, count: Callable[[], float]) -> None:
        """Export the number of the shard's objects of *resource*, which *count* returns."""
        self._objects.labels(self._controller, resource).set_function(count)
