"""Metrics of a proxy: those of every shard, restarts of its controller, and writes that it refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kubeio.shard.metrics import ShardMetrics
from proxy.refusals import Refusal, reason_of
from proxy.restart import Cause

_BUCKETS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
"""From a quick controller to one that uses its --stop-within and waits for lost answers."""


class ProxyMetrics:
    """Metrics of the proxy of *controller*; one instance per process and registry."""

    def __init__(self, registry: CollectorRegistry, *, controller: str) -> None:
        self.shard: Final = ShardMetrics(registry, controller=controller)
        self._controller: Final = controller
        restarts = Histogram(
            "ringleader_proxy_restart_seconds",
            "Time without a controller at a restart",
            ["controller", "cause"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._restarts: Final = {cause: restarts.labels(controller, cause.value) for cause in Cause}
        self._refused: Final = Counter(
            "ringleader_proxy_refused_writes",
            "Writes of the controller that the proxy refused",
            ["controller", "reason"],
            registry=registry,
        )
        self._connections: Final = Gauge(
            "ringleader_proxy_connections",
            "Connections of the controller, and those that await the answer to a write",
            ["controller"],
            registry=registry,
        ).labels(controller)

    def restarted(self, cause: Cause, took_s: float) -> None:
        """The controller runs again, after *took_s* without one."""
        self._restarts[cause].observe(took_s)

    def refused(self, refusal: Refusal) -> None:
        """A write did not pass."""
        self._refused.labels(self._controller, reason_of(refusal)).inc()

    def watch_connections(self, count: Callable[[], float]) -> None:
        """Export the number of connections, which *count* returns."""
        self._connections.set_function(count)
