"""Counts and durations in plain numbers, put into Prometheus' shape on each scrape.

For paths on which the library's own counters, with a lock each, would cost more than what they count.
Only one thread may count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)


class FastHistogram:
    """Histogram of durations: a count for each of *buckets* (seconds), and the sum. A duration costs about 0.2 us."""

    __slots__ = ("_bounds", "_buckets", "_counts", "_sum_s")

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = tuple(buckets)
        self._bounds = (*map(floatToGoString, buckets), "+Inf")
        self._counts = [0] * len(self._bounds)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one of *seconds*."""
        self._counts[bisect_left(self._buckets, seconds)] += 1
        self._sum_s += seconds

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the sample to *family*, under the values *labels*."""
        buckets = list(zip(self._bounds, map(float, accumulate(self._counts)), strict=True))
        family.add_metric(labels, buckets, self._sum_s)


class FastCounter:
    """A counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """Count one more."""
        self.value += 1


class FastCollector(Collector, Generic[F]):
    """A metric whose samples *add_samples* computes on each scrape; *family* makes it, without values."""

    def __init__(self, family: Callable[[], F], add_samples: Callable[[F], None]) -> None:
        self._family: Callable[[], F] = family
        self._add_samples: Callable[[F], None] = add_samples
        self._labelnames = family()._labelnames  # called as in the library's own collectors

    def describe(self) -> Iterator[Metric]:
        """The metric without values: a registry refuses names that are taken."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        self._add_samples(family)
        yield family
