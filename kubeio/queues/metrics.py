"""Metrics of work queues under client-go's names, with controller-runtime's labels: `workqueue_*{name,controller}`.

Called by `kubeio.queues.workqueue`. The depth is told by priority too, as controller-runtime tells it. What happens to
a key is counted in plain numbers, and put into Prometheus' shape when somebody scrapes: the library's own counters
would cost a key more than the queue does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

DECADES: Final = (1e-8, 1e-7, 1e-6, 1e-5, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""controller-runtime's buckets; between them ours, since a quantile within a decade says little."""
_BUCKETS: Final = tuple(sorted({*DECADES, 0.005, 0.05, 0.25, 0.5, 2.5, 5.0, 30.0, 60.0, 300.0}))
_BOUNDS: Final = (*map(floatToGoString, _BUCKETS), "+Inf")

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)


class Durations:
    """How many of them fell between which bounds, and their sum. A duration costs about 0.2 us."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one of *seconds*."""
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum_s += seconds

    def add_to(self, family: HistogramMetricFamily, name: str) -> None:
        """Tell *family* about the queue *name*."""
        buckets = list(zip(_BOUNDS, map(float, accumulate(self._counts)), strict=True))
        family.add_metric([name, name], buckets, self._sum_s)


class QueueMetrics:
    """What one queue counts. Gauges are read from the queue when somebody scrapes: no cost per key."""

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
        self.queue_duration = Durations()
        self.work_duration = Durations()
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
        """What the queue *name* reports to; it is its controller's name too, as in controller-runtime."""
        metrics = QueueMetrics(name)
        self._queues.append(metrics)
        return metrics

    def _told(self) -> Iterator[Collector]:
        queues = self._queues
        yield _Told(
            queues,
            lambda: _gauge(
                "depth",
                "Current depth of workqueue by workqueue and priority",
                ["name", "controller", "priority"],
            ),
            lambda queue, family: queue.add_depth(family),
        )
        yield _Told(
            queues,
            lambda: _counter("adds", "Total number of adds handled by workqueue"),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.adds),
        )
        yield _Told(
            queues,
            lambda: _counter("retries", "Total number of retries handled by workqueue"),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.retries),
        )
        yield _Told(
            queues,
            lambda: _histogram(
                "queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
            ),
            lambda queue, family: queue.queue_duration.add_to(family, queue.name),
        )
        yield _Told(
            queues,
            lambda: _histogram(
                "work_duration_seconds", "How long in seconds processing an item from workqueue takes."
            ),
            lambda queue, family: queue.work_duration.add_to(family, queue.name),
        )
        yield _Told(
            queues,
            lambda: _gauge(
                "unfinished_work_seconds",
                "Seconds of work that is in progress and has not been observed by work_duration, in sum.",
            ),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.unfinished_s()),
        )
        yield _Told(
            queues,
            lambda: _gauge(
                "longest_running_processor_seconds",
                "How many seconds the longest running processor has been running.",
            ),
            lambda queue, family: family.add_metric([queue.name, queue.name], queue.longest_s()),
        )


class _Told(Collector, Generic[F]):
    """One metric of all *queues*, put together for each scrape."""

    def __init__(
        self,
        queues: Sequence[QueueMetrics],
        family: Callable[[], F],
        tell: Callable[[QueueMetrics, F], None],
    ) -> None:
        self._queues = queues
        self._family: Callable[[], F] = family
        self._tell: Callable[[QueueMetrics, F], None] = tell
        self._labelnames = family()._labelnames  # called as in the library's own collectors

    def describe(self) -> Iterator[Metric]:
        """The metric without queues: a registry refuses names that are taken."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for queue in self._queues:
            self._tell(queue, family)
        yield family


def _nothing() -> float:
    return 0.0


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"workqueue_{name}", text, labels=["name", "controller"])


def _gauge(name: str, text: str, labels: Sequence[str] = ("name", "controller")) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"workqueue_{name}", text, labels=labels)


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"workqueue_{name}", text, labels=["name", "controller"])
