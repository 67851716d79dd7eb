"""Metrics of work queues under client-go's names, with controller-runtime's labels: `workqueue_*{name,controller}`.

The depth has a label for priority too, as in controller-runtime. What happens to a key is counted in plain numbers
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

    __slots__ = (
        "_depth",
        "_longest_s",
        "_unfinished_s",
        "adds",
        "name",
        "queue_duration",
        "retries",
        "work_duration",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.adds = 0
        self.retries = 0
        self.queue_duration = FastHistogram(_BUCKETS)
        self.work_duration = FastHistogram(_BUCKETS)
        self._depth: Mapping[str, Callable[[], float]] = {}
        self._unfinished_s: Callable[[], float] = _nothing
        self._longest_s: Callable[[], float] = _nothing

    def read_from(
        self,
        *,
        depth: Mapping[str, Callable[[], float]],
        unfinished_s: Callable[[], float],
        longest_s: Callable[[], float],
    ) -> None:
        """Have the gauges ask the queue; *depth* by priority."""
        self._depth, self._unfinished_s, self._longest_s = depth, unfinished_s, longest_s

    def add_depth(self, family: GaugeMetricFamily) -> None:
        """Tell *family* how many keys wait."""
        for priority, waiting in self._depth.items():
            family.add_metric([self.name, self.name, priority], waiting())

    def unfinished_s(self) -> float:
        return self._unfinished_s()

    def longest_s(self) -> float:
        return self._longest_s()


class QueueCollectors:
    """The metrics of all queues of one process that share *registry*: build it once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queues: list[QueueMetrics] = []
        for told in self._told():
            registry.register(told)

    def named(self, name: str) -> QueueMetrics:
        """New metrics for the queue *name*, which is the name of its controller too, as in controller-runtime."""
        metrics = QueueMetrics(name)
        self._queues.append(metrics)
        return metrics

    def _told(self) -> Iterator[Collector]:
        queues = self._queues
        yield _told(
            queues,
            lambda: _gauge(
                "depth",
                "Current depth of workqueue by workqueue and priority",
                ["name", "controller", "priority"],
            ),
            lambda queue, family: queue.add_depth(family),
        )
        yield _told(
            queues,
            lambda: _counter("adds", "Total number of adds handled by workqueue"),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.adds),
        )
        yield _told(
            queues,
            lambda: _counter("retries", "Total number of retries handled by workqueue"),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.retries),
        )
        yield _told(
            queues,
            lambda: _histogram(
                "queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
            ),
            lambda queue, family: queue.queue_duration.add_to(family, (queue.name, queue.name)),
        )
        yield _told(
            queues,
            lambda: _histogram(
                "work_duration_seconds", "How long in seconds processing an item from workqueue takes."
            ),
            lambda queue, family: queue.work_duration.add_to(family, (queue.name, queue.name)),
        )
        yield _told(
            queues,
            lambda: _gauge(
                "unfinished_work_seconds",
                "Seconds of work that is in progress and has not been observed by work_duration, in sum.",
            ),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.unfinished_s()),
        )
        yield _told(
            queues,
            lambda: _gauge(
                "longest_running_processor_seconds",
                "How many seconds the longest running processor has been running.",
            ),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.longest_s()),
        )


def _told(
    queues: Sequence[QueueMetrics], family: Callable[[], F], tell: Callable[[QueueMetrics, F], None]
) -> FastCollector[F]:
    """One metric of all *queues*."""

    def tell_all(family: F) -> None:
        for queue in queues:
            tell(queue, family)

    return FastCollector(family, tell_all)


def _nothing() -> float:
    return 0.0


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"workqueue_{name}", text, labels=["name", "controller"])


def _gauge(name: str, text: str, labels: Sequence[str] = ("name", "controller")) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"workqueue_{name}", text, labels=labels)


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"workqueue_{name}", text, labels=["name", "controller"])
