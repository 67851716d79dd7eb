"""Metrics of work queues under client-go's names, with controller-runtime's labels: `workqueue_*{name,controller}`.

The depth has a label for priority too, as in controller-runtime. Keys are counted in plain numbers
(`kubeio.fast_metrics`): the library's own counters would cost more than the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kubeio.fast_metrics import FastCollector, FastHistogram

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)

DECADES: Final = (1e-8, 1e-7, 1e-6, 1e-5, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""controller-runtime's buckets; between them ours, since a quantile within a decade says little."""
_BUCKETS: Final = tuple(sorted({*DECADES, 0.005, 0.05, 0.25, 0.5, 2.5, 5.0, 30.0, 60.0, 300.0}))


class QueueMetrics:
    """Metrics of one queue. Gauges are read from the queue on each scrape: no cost per key."""

    def __init__(self, name: str) -> None:
        self.labels = (name, name)
        """Values of `name` and `controller`."""
        self.adds = 0
        self.retries = 0
        self.queue_duration = FastHistogram(_BUCKETS)
        self.work_duration = FastHistogram(_BUCKETS)
        self._depth: Mapping[str, Callable[[], float]] = {}
        self.unfinished_s: Callable[[], float] = lambda: 0.0
        self.longest_s: Callable[[], float] = lambda: 0.0

    def read_from(
        self,
        *,
        depth: Mapping[str, Callable[[], float]],
        unfinished_s: Callable[[], float],
        longest_s: Callable[[], float],
    ) -> None:
        """Read the gauges from the queue; *depth* by priority."""
        self._depth, self.unfinished_s, self.longest_s = depth, unfinished_s, longest_s

    def add_depth(self, family: GaugeMetricFamily) -> None:
        """Add the number of waiting keys to *family*, by priority."""
        for priority, waiting in self._depth.items():
            family.add_metric([*self.labels, priority], waiting())


class QueueCollectors:
    """The metrics of all queues of one process that share *registry*: build it once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queues: list[QueueMetrics] = []
        for collector in self._collectors():
            registry.register(collector)

    def named(self, name: str) -> QueueMetrics:
        """New metrics for the queue *name*, which is the name of its controller too, as in controller-runtime."""
        metrics = QueueMetrics(name)
        self._queues.append(metrics)
        return metrics

    def _collectors(self) -> Iterator[Collector]:
        depth = "Current depth of workqueue by workqueue and priority"
        yield self._collector(GaugeMetricFamily, "depth", depth, QueueMetrics.add_depth, labels=["priority"])
        yield self._collector(
            CounterMetricFamily,
            "adds",
            "Total number of adds handled by workqueue",
            lambda queue, family: family.add_metric(queue.labels, queue.adds),
        )
        yield self._collector(
            CounterMetricFamily,
            "retries",
            "Total number of retries handled by workqueue",
            lambda queue, family: family.add_metric(queue.labels, queue.retries),
        )
        yield self._collector(
            HistogramMetricFamily,
            "queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            lambda queue, family: queue.queue_duration.add_to(family, queue.labels),
        )
        yield self._collector(
            HistogramMetricFamily,
            "work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            lambda queue, family: queue.work_duration.add_to(family, queue.labels),
        )
        yield self._collector(
            GaugeMetricFamily,
            "unfinished_work_seconds",
            "Seconds of work that is in progress and has not been observed by work_duration, in sum.",
            lambda queue, family: family.add_metric(queue.labels, queue.unfinished_s()),
        )
        yield self._collector(
            GaugeMetricFamily,
            "longest_running_processor_seconds",
            "How many seconds the longest running processor has been running.",
            lambda queue, family: family.add_metric(queue.labels, queue.longest_s()),
        )

    def _collector(
        self,
        type_: Callable[..., F],
        name: str,
        text: str,
        add_samples: Callable[[QueueMetrics, F], None],
        *,
        labels: Sequence[str] = (),
    ) -> FastCollector[F]:
        """One metric of all queues."""

        def add_all(family: F) -> None:
            for queue in self._queues:
                add_samples(queue, family)

        names = ["name", "controller", *labels]
        return FastCollector(lambda: type_(f"workqueue_{name}", text, labels=names), add_all)
