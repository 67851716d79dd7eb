"""What the metrics of many processes say together: histograms and counters of one window of time. Pure.

A process that was started anew counts from 0 again: its series begin with that. So does the sum.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

QUEUE: Final = "workqueue_queue_duration_seconds"
RECONCILE: Final = "controller_runtime_reconcile_time_seconds"
STARTED: Final = "process_start_time_seconds"
DEPTH: Final = "workqueue_depth"
API_LATENCY: Final = "apiserver_request_duration_seconds"
API_REQUESTS: Final = "apiserver_request_total"
_LASTING: Final = frozenset({"WATCH", "WATCHLIST", "CONNECT"})

Buckets = Mapping[float, float]
"""Cumulative count by upper bound."""


class MetricsPage:
    """One scrape of a replica: cumulative buckets by histogram, queued keys, and when the process started."""

    def __init__(self, text: str) -> None:
        self.started = 0.0
        self.queued = 0.0
        self.histograms: dict[str, defaultdict[float, float]] = {
            QUEUE: defaultdict(float),
            RECONCILE: defaultdict(float),
        }
        for line in text.splitlines():
            if line.startswith(STARTED + " "):
                self.started = float(line.rpartition(" ")[2])
                continue
            if line.startswith(DEPTH + "{"):
                self.queued += _parsed(line)[1]
            for name, buckets in self.histograms.items():
                if line.startswith(name + "_bucket{"):
                    labels, value = _parsed(line)
                    buckets[float(labels["le"])] += value


class Window:
    """Histograms of several processes since the window began: add each page as it comes."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, float], MetricsPage] = {}
        self._last: dict[tuple[str, float], MetricsPage] = {}
        self._baseline_open = True

    def add(self, process: str, page: MetricsPage) -> None:
        """Take a scrape of *process*. One that starts within the window counts from its start."""
        life = (process, page.started)
        if self._baseline_open:
            self._first[life] = page
        self._last[life] = page

    def begin(self) -> None:
        """A window begins: what was counted before does not count."""
        self._baseline_open = False
        self._first = dict(self._last)

    def buckets(self, histogram: str) -> Buckets:
        """Observations of all processes within the window, by upper bound."""
        total: defaultdict[float, float] = defaultdict(float)
        for life, last in self._last.items():
            before = self._first[life].histograms[histogram] if life in self._first else {}
            for bound, count in last.histograms[histogram].items():
                total[bound] += count - before.get(bound, 0.0)
        return total


def observations(buckets: Buckets) -> int:
    return int(buckets.get(math.inf, 0.0))


class ApiPage:
    """One scrape of an API server: requests by verb and code, latency buckets by verb. Watches are left out."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.latency: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        self.codes: defaultdict[str, float] = defaultdict(float)
        for line in lines:
            # the page has megabytes of other series: only ours are parsed
            if line.startswith(API_LATENCY + "_bucket{"):
                labels, value = _parsed(line)
                if labels.get("verb") not in _LASTING:
                    self.latency[labels.get("verb", "")][float(labels["le"])] += value
            elif line.startswith(API_REQUESTS + "{"):
                labels, value = _parsed(line)
                if labels.get("verb") not in _LASTING:
                    self.codes[labels.get("code", "")] += value

    def since(self, before: ApiPage) -> dict[str, Buckets]:
        """Latency buckets by verb of the requests after *before*."""
        return {
            verb: {bound: count - before.latency[verb][bound] for bound, count in buckets.items()}
            for verb, buckets in self.latency.items()
        }

    def codes_since(self, before: ApiPage) -> dict[str, int]:
        return {code: int(count - before.codes[code]) for code, count in self.codes.items()}


def _parsed(line: str) -> tuple[dict[str, str], float]:
    inside, _, value = line.partition("{")[2].rpartition("} ")
    pairs = (pair.partition("=") for pair in inside.split('",'))
    return {name: text.strip('"') for name, _, text in pairs}, float(value)
