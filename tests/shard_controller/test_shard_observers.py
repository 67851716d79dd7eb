"""What a reconcile's end means to metrics, history and log."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kubeio.clock import ManualClock
from kubeio.errors import Conflict
from kubeio.models import ObjectKey
from shard_controller.declare.errors import Elsewhere, NotOurs, PermanentError, ReconcileTimeout, Refused
from shard_controller.declare.request import Request
from shard_controller.observe.history import History
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.observe.observer import Outcome
from shard_controller.observe.reconcile_log import ReconcileLog

BLOG = Request("websites.example.com", ObjectKey("ns", "blog"))
REFUSED = Refused("blog", status=422, message="no")
CONFLICT = Conflict("PATCH blog", status=409)


def count(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, {"controller": "c", **labels}) or 0.0


@pytest.mark.parametrize(
    ("outcome", "error", "result", "logged"),
    [
        ("done", None, "success", []),
        ("requeue", None, "requeue_after", []),
        ("requeue", CONFLICT, "requeue", ["another client wrote first"]),
        ("requeue", Elsewhere("page", shard="b"), "requeue", ["controlled object is elsewhere"]),
        ("lost", REFUSED, "requeue", ["ownership in doubt"]),
        ("lost", None, "", []),
        ("cancelled", None, "", []),
        ("error", ValueError("no"), "error", ["reconcile failed"]),
        ("error", PermanentError("no"), "error", ["reconcile failed for good"]),
        ("error", ReconcileTimeout("late"), "error", ["reconcile failed"]),
    ],
)
def test_an_end_is_counted_and_logged_by_its_outcome_and_error(
    outcome: Outcome, error: Exception | None, result: str, logged: list[str]
) -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry, controller="c", workers=1)
    with capture_logs() as logs:
        for observer in (metrics, ReconcileLog(structlog.get_logger())):
            observer.ended(BLOG, outcome, error, 1.0, 0.5)
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == logged
    assert all(entry["object"] == "ns/blog" for entry in logs)
    counted = {
        name: count(registry, "controller_runtime_reconcile_total", result=name)
        for name in ("success", "requeue_after", "requeue", "error")
    }
    assert counted == {name: float(name == result) for name in counted}
    is_error = float(outcome == "error")
    assert count(registry, "controller_runtime_reconcile_errors_total") == is_error
    terminal = float(isinstance(error, PermanentError))
    assert count(registry, "controller_runtime_terminal_reconcile_errors_total") == terminal
    timeouts = float(isinstance(error, ReconcileTimeout))
    assert count(registry, "controller_runtime_reconcile_timeouts_total") == timeouts


@pytest.mark.parametrize(
    ("error", "is_written"),
    [(ValueError("no"), True), (NotOurs("page", controller="b"), False), (CONFLICT, False)],
)
def test_only_an_exception_of_users_code_is_logged_with_its_stack(error: Exception, is_written: bool) -> None:
    with capture_logs() as logs:
        ReconcileLog(structlog.get_logger()).ended(BLOG, "error", error, 1.0, 0.5)
    assert (logs[0]["exc_info"] is error) is is_written


def test_an_interrupted_reconcile_keeps_the_error_before_it() -> None:
    history = History(ManualClock())

    def ended(outcome: Any, error: Exception | None = None) -> bool:
        history.ended(BLOG, outcome, error, 1.0, 0.5)
        return history.failure(BLOG) is not None

    assert ended("error", ValueError("no"))
    assert ended("cancelled")
    assert ended("lost")
    assert not ended("done")
    assert ended("requeue", CONFLICT)
    assert not ended("requeue")
