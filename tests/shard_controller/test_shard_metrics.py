"""Metrics under the names, labels and buckets of controller-runtime 0.22: dashboards are made for them."""

from __future__ import annotations

import random

import pytest
from prometheus_client import CollectorRegistry, Metric

from kubeio.clock import ManualClock
from kubeio.leases.election import leader_gauge
from kubeio.queues.metrics import QueueCollectors
from kubeio.queues.workqueue import WorkQueue
from kubeio.rest.metrics import ClientMetrics
from shard_controller.observe.metrics import ControllerMetrics
from tests.shard_controller.bench import Bench

KNOWN = {
    "controller_runtime_reconcile": ("counter", {"controller", "result"}),
    "controller_runtime_reconcile_errors": ("counter", {"controller"}),
    "controller_runtime_terminal_reconcile_errors": ("counter", {"controller"}),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}),
    "controller_runtime_active_workers": ("gauge", {"controller"}),
    "workqueue_depth": ("gauge", {"name", "controller", "priority"}),
    "workqueue_adds": ("counter", {"name", "controller"}),
    "workqueue_queue_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_work_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_unfinished_work_seconds": ("gauge", {"name", "controller"}),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name", "controller"}),
    "workqueue_retries": ("counter", {"name", "controller"}),
    "rest_client_requests": ("counter", {"code", "method", "host"}),
    "leader_election_master_status": ("gauge", {"name"}),
}
TIME_BUCKETS = (
    "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75 2 2.5 3 3.5 4 4.5 "
    "5 6 7 8 9 10 15 20 25 30 40 50 60 inf"
)


def scraped() -> dict[str, Metric]:
    """What a replica offers before anything has happened."""
    registry = CollectorRegistry()
    ControllerMetrics(registry, controller="sites", workers=3)
    metrics = QueueCollectors(registry).named("sites")
    WorkQueue[str](clock=ManualClock(), rng=random.Random(1), metrics=metrics)
    ClientMetrics(registry).observe(200, "GET", "host", 0.1)
    leader_gauge(registry).labels("sites").set(0)
    return {metric.name: metric for metric in registry.collect()}


@pytest.mark.parametrize("name", KNOWN)
def test_a_metric_that_dashboards_know_has_its_type_and_labels_and_is_there_from_the_start(name: str) -> None:
    metric = scraped()[name]
    kind, labels = KNOWN[name]
    assert metric.type == kind
    samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    assert samples
    assert {frozenset(sample.labels) - {"le"} for sample in samples} == {frozenset(labels)}


def test_every_result_is_there_before_it_happens() -> None:
    """A counter that begins to exist with its first error has no rate."""
    samples = scraped()["controller_runtime_reconcile"].samples
    totals = {sample.labels["result"]: sample.value for sample in samples if sample.name.endswith("_total")}
    assert totals == {"success": 0, "requeue_after": 0, "requeue": 0, "error": 0}


def buckets(metric: Metric) -> list[float]:
    return [float(sample.labels["le"]) for sample in metric.samples if sample.name.endswith("_bucket")]


def test_the_buckets_of_reconciles_are_those_of_controller_runtime() -> None:
    found = buckets(scraped()["controller_runtime_reconcile_time_seconds"])
    assert found == [float(bucket) for bucket in TIME_BUCKETS.split()]


@pytest.mark.parametrize("name", ["workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"])
def test_the_buckets_of_a_queue_contain_those_of_controller_runtime(name: str) -> None:
    assert set(buckets(scraped()[name])) > {10.0**exponent for exponent in range(-8, 4)}


async def test_an_error_that_is_final_counts_as_terminal_too(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "permanent", owner=shard)
    await bench.until(lambda: shard.logged("reconcile failed for good"))
    metrics = await shard.metrics()
    terminal = metrics['controller_runtime_terminal_reconcile_errors_total{controller="sites"}']
    assert terminal == metrics['controller_runtime_reconcile_errors_total{controller="sites"}'] >= 1
    assert "process_resident_memory_bytes" in metrics
