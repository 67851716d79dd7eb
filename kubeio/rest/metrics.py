"""Metrics of the client under client-go's names: `rest_client_*`."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

NO_ANSWER: Final = "<error>"
"""`code` of a request that got no answer, as in client-go."""

_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class ClientMetrics:
    """Counts the requests of all clients of one process that share *registry*: build it once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._children: dict[tuple[int | None, str, str], tuple[Counter, Histogram]] = {}

    def observe(self, status: int | None, method: str, host: str, duration_s: float) -> None:
        """One request ended after *duration_s*, with *status*; None: with no answer."""
        key = (status, method, host)
        children = self._children.get(key)
        if children is None:
            code = NO_ANSWER if status is None else str(status)
            children = (self._requests.labels(code, method, host), self._durations.labels(method, host))
            self._children[key] = children
        children[0].inc()
        children[1].observe(duration_s)
