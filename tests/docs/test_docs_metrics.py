"""docs/metrics.md and the processes say the same: every metric with its labels, and no other."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeio.clock import SystemClock
from kubeio.leases.election import leader_gauge
from kubeio.program.logs import watch_dropped
from kubeio.queues.metrics import QueueCollectors
from kubeio.rest.metrics import ClientMetrics
from proxy.metrics import ProxyMetrics
from shard_controller.observe.metrics import ControllerMetrics
from sharder.admission.metrics import AdmissionMetrics
from sharder.metrics import LimiterMetrics, SharderMetrics
from sharder.schema import crd_gauge
from sharder.writing.limiter import WriteLimiter
from tests.docs.metrics_page import ROOT, documented

NAMED = re.compile(r"`((?:ringleader|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+)[`{]")


def offered() -> dict[str, list[str]]:
    """Labels of each metric that a sharder, a replica or a proxy registers, under the name that is scraped."""
    registry = CollectorRegistry()
    SharderMetrics(registry)
    LimiterMetrics(registry, WriteLimiter(clock=SystemClock(), rng=random.Random(1)))
    AdmissionMetrics(registry)
    ControllerMetrics(registry, controller="websites", workers=1)
    QueueCollectors(registry)
    ClientMetrics(registry)
    leader_gauge(registry)
    crd_gauge(registry)
    watch_dropped(registry)
    of_proxies = CollectorRegistry()  # those of every shard are the replica's, too
    ProxyMetrics(of_proxies, controller="websites")
    return dict(_described(registry)) | dict(_described(of_proxies))


def _described(registry: CollectorRegistry) -> Iterator[tuple[str, list[str]]]:
    collectors: Any = registry._collector_to_names
    for collector in collectors:
        for metric in collector.describe():
            suffix = "_total" if metric.type == "counter" else ""
            yield metric.name + suffix, list(collector._labelnames) or [""]


def test_every_metric_stands_on_the_page_with_its_labels_and_the_reverse() -> None:
    assert documented() == offered()


@pytest.mark.parametrize(
    "page",
    [
        path
        for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
        if path.name not in ("metrics.md", "benchmarks.md")
    ],
    ids=lambda path: str(path.name),
)
def test_no_other_page_names_a_metric_that_does_not_exist(page: Path) -> None:
    known = offered()
    named = {name for name in NAMED.findall(page.read_text()) if not name.endswith("_")}
    missing = {name for name in named if name not in known and f"{name}_total" not in known}
    assert not missing, f"{page.name} names {sorted(missing)}"
