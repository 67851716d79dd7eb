"""Metrics of work queues under client-go's names, with controller-runtime's labels: `workqueue_*{name,controller}`.

Called by `kubeio.queues.workqueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

DECADES: Final = (1e-8, 1e-7, 1e-6, 1e-5, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""controller-runtime's buckets; between them ours, since a quantile within a decade says little."""
_BUCKETS: Final = tuple(sorted({*DECADES, 0.005, 0.05, 0.25, 0.5, 2.5, 5.0, 30.0, 60.0, 300.0}))
_LABELS: Final = ["name", "controller"]


class QueueCollectors:
    """The collectors of all queues of one process that share *registry*: build it once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.depth = Gauge("workqueue_depth", "Current depth of workqueue", _LABELS, registry=registry)
        self.adds = Counter(
            "workqueue_adds", "Total number of adds handled by workqueue", _LABELS, registry=registry
        )
        self.retries = Counter(
            "workqueue_retries", "Total number of retries handled by workqueue", _LABELS, registry=registry
        )
        self.queue_duration = Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            _LABELS,
            buckets=_BUCKETS,
            registry=registry,
        )
        self.work_duration = Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            _LABELS,
            buckets=_BUCKETS,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work that is in progress and has not been observed by work_duration, in sum.",
            _LABELS,
            registry=registry,
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest running processor has been running.",
            _LABELS,
            registry=registry,
        )

    def named(self, name: str) -> QueueMetrics:
        """What the queue *name* reports to; it is its controller's name too, as in controller-runtime."""
        return QueueMetrics(self, name)


class QueueMetrics:
    """The children of one queue. Gauges are read from the queue when somebody scrapes: no cost per key."""

    def __init__(self, collectors: QueueCollectors, name: str) -> None:
        self.adds = collectors.adds.labels(name, name)
        self.retries = collectors.retries.labels(name, name)
        self.queue_duration = collectors.queue_duration.labels(name, name)
        self.work_duration = collectors.work_duration.labels(name, name)
        self._depth = collectors.depth.labels(name, name)
        self._unfinished = collectors.unfinished.labels(name, name)
        self._longest = collectors.longest.labels(name, name)

    def read_from(
        self,
        *,
        depth: Callable[[], float],
        unfinished_s: Callable[[], float],
        longest_s: Callable[[], float],
    ) -> None:
        """Have the gauges ask the queue."""
        self._depth.set_function(depth)
        self._unfinished.set_function(unfinished_s)
        self._longest.set_function(longest_s)
