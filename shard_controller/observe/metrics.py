"""Metrics of a replica: controller-runtime's names where they mean the same, `ringleader_shard_*` for what is ours.

Labels come from closed sets. Metrics that every reconcile updates are plain numbers (`kubeio.fast_metrics`).
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from kubeio.errors import ApiError
from kubeio.fast_metrics import FastCollector, FastCounter, FastHistogram
from kubeio.models import Meta
from kubeio.shard.metrics import ShardMetrics
from shard_controller.declare.errors import PermanentError, ReconcileTimeout
from shard_controller.declare.request import Request
from shard_controller.observe.observer import Observer, Outcome

_FRACTIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9)
_SECONDS = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60)
BUCKETS = (*_FRACTIONS, *_SECONDS)
"""controller-runtime's, so that both kinds of controllers can be added up."""
RESULTS = ("success", "requeue_after", "requeue", "error")


class ControllerMetrics(Observer):
    """Metrics of one controller; one instance per process and registry."""

    def __init__(self, registry: CollectorRegistry, *, controller: str, workers: int) -> None:
        self.results = {result: FastCounter() for result in RESULTS}
        self._success = self.results["success"]
        self.time = FastHistogram(BUCKETS)
        registry.register(FastCollector(_results, self._add_results))
        registry.register(FastCollector(_times, lambda family: self.time.add_to(family, (controller,))))

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ["controller"], registry=registry).labels(controller)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["controller"], registry=registry).labels(controller)

        self.errors = counter(
            "controller_runtime_reconcile_errors", "Total number of reconciliation errors per controller"
        )
        self.terminal = counter(
            "controller_runtime_terminal_reconcile_errors",
            "Total number of terminal reconciliation errors per controller",
        )
        self.unfit_objects = counter(
            "ringleader_shard_unfit_objects", "Objects that do not fit the model, counted per version"
        )
        self.timeouts = counter(
            "controller_runtime_reconcile_timeouts",
            "Total number of reconciliation timeouts per controller",
        )
        self._active = gauge(
            "controller_runtime_active_workers", "Number of currently used workers per controller"
        )
        gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
        ).set(workers)
        handoffs = Counter(
            "ringleader_shard_handoffs",
            "Objects given up on request, by the way they went",
            ["controller", "kind"],
            registry=registry,
        )
        self.handoffs = {kind: handoffs.labels(controller, kind) for kind in ("directed", "plain", "kept")}
        self.foreign = counter(
            "ringleader_shard_dropped_keys", "Keys that were not ours when they left the queue"
        )
        self.overruns = counter(
            "ringleader_shard_overruns", "Reconciles that went on after their cancellation"
        )
        self.refused_writes = counter("ringleader_shard_refused_writes", "Writes that the fence refused")
        self._blocks = counter(
            "ringleader_shard_loop_blocks",
            "Times that the event loop was blocked for longer than --blocked-loop",
        )
        self._blocked_s = counter(
            "ringleader_shard_loop_blocked_seconds", "Time in which the event loop was blocked, in sum"
        )
        self._controller = controller
        self.shard = ShardMetrics(registry, controller=controller)
        self._oldest_key = gauge(
            "ringleader_shard_oldest_key_seconds", "How long the oldest key has waited in the work queue"
        )

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        self.time.observe(took_s)
        if outcome == "done":
            self._success.inc()
        elif error is None:
            if outcome == "requeue":
                self.results["requeue_after"].inc()
        elif outcome != "error":
            self.results["requeue"].inc()
        else:
            self._failed()
            if isinstance(error, PermanentError):
                self.terminal.inc()
            if isinstance(error, ReconcileTimeout):
                self.timeouts.inc()

    def unfit(self, request: Request, meta: Meta, error: Exception) -> None:
        self._failed()
        self.terminal.inc()
        self.unfit_objects.inc()

    def refused(self, request: Request, error: ApiError) -> None:
        self.refused_writes.inc()

    def _failed(self) -> None:
        self.results["error"].inc()
        self.errors.inc()

    def loop_blocked(self) -> None:
        """A block of the event loop began."""
        self._blocks.inc()

    def loop_freed(self, took_s: float) -> None:
        """A block of the event loop is over."""
        self._blocked_s.inc(took_s)

    def watch_running(self, count: Callable[[], float]) -> None:
        """Export the number of running reconciles, which *count* returns."""
        self._active.set_function(count)

    def watch_queue(self, oldest_s: Callable[[], float]) -> None:
        """Export how long the oldest key has waited, which *oldest_s* returns."""
        self._oldest_key.set_function(oldest_s)

    def _add_results(self, family: CounterMetricFamily) -> None:
        for result, count in self.results.items():
            family.add_metric((self._controller, result), count.value)


def _results() -> CounterMetricFamily:
    return CounterMetricFamily(
        "controller_runtime_reconcile",
        "Total number of reconciliations per controller",
        labels=["controller", "result"],
    )


def _times() -> HistogramMetricFamily:
    return HistogramMetricFamily(
        "controller_runtime_reconcile_time_seconds",
        "Length of time per reconciliation per controller",
        labels=["controller"],
    )
