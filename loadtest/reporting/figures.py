"""From what a run found to the figures of its verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from loadtest.inputs.slo import Measured
from loadtest.observing.histograms import QUEUE, RECONCILE, Buckets, Window, observations
from loadtest.observing.observer import ASSIGNED, CHANGED, READY, MeasuredWait
from loadtest.quantiles import bucket_quantile, percentile
from loadtest.run import Found

_P99: Final = 0.99
_WAITS: Final = {"assigned": ASSIGNED, "ready": READY, "changed": CHANGED}
_OPERATION_OF: Final = {"assigned": "create", "ready": "create", "changed": "update"}
OPERATIONS: Final = ("create", "update", "delete")


def measured(
    found: Found, waits: Sequence[MeasuredWait], window: Window, *, changes_spec: bool
) -> dict[str, Measured]:
    """The value of each line that a service level may name."""
    figures = {name: _wait(name, found, waits, changes_spec) for name in _WAITS}
    figures["queueWait"] = _histogram(window.buckets(QUEUE))
    figures["reconcile"] = _histogram(window.buckets(RECONCILE))
    requests, failures = request_counts(found.requests)
    nothing = "the load made no request"
    figures["failures"] = Measured(failures / requests, requests) if requests else Measured(None, 0, nothing)
    share = operations(found.requests) / max(found.schedule.wanted_operations, 1.0)
    figures["achieved"] = Measured(min(share, 1.0), requests)  # the first seconds are not asked for
    figures["unowned"] = _at_end(found, found.unowned)
    figures["unready"] = (
        _at_end(found, found.unready) if found.prepared.measures_ready else _silent_kind(found)
    )
    said = found.testimony
    for name, value in (("overlaps", said.overlaps), ("foreignWrites", said.foreign_writes)):
        is_absent = value is None and said.reconciles == 0 and "no check" in said.reason
        figures[name] = Measured(value, said.reconciles, said.reason, is_excused=is_absent)
    return figures


def wait_rows(waits: Sequence[MeasuredWait]) -> dict[str, dict[str, float]]:
    """Count and percentiles in seconds, by wait."""
    rows: dict[str, dict[str, float]] = {}
    for name in (ASSIGNED, READY, CHANGED):
        values = sorted(wait.took_s for wait in waits if wait.name == name)
        if values:
            rows[name] = {
                "count": len(values),
                **{f"p{share * 100:g}_s": round(percentile(values, share), 4) for share in (0.5, 0.95, 0.99)},
                "max_s": round(values[-1], 4),
            }
    return rows


def request_rows(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What locust counted of the load's own requests, by operation."""
    return {
        name: {
            "requests": row["num_requests"],
            "failures": row["num_failures"],
            "p50_s": _from_locust(row["response_times"], 0.5),
            "p99_s": _from_locust(row["response_times"], _P99),
        }
        for name, row in rows.items()
        if name not in _WAITS.values()
    }


def request_counts(rows: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    """Requests and failures of the load."""
    own = [row for name, row in rows.items() if name not in _WAITS.values()]
    return sum(row["num_requests"] for row in own), sum(row["num_failures"] for row in own)


def operations(rows: Mapping[str, Mapping[str, Any]]) -> int:
    """Operations that ended, well or not: requests without those that were sent again after a 429."""
    return sum(rows[name]["num_requests"] for name in OPERATIONS if name in rows)


def api_rows(found: Found) -> dict[str, dict[str, float]]:
    """Requests and p99 of the API server by verb, as it counted them during the load."""
    if found.api is None:
        return {}
    before, after = found.api
    return {
        verb: {"requests": observations(buckets), "p99_s": round(bucket_quantile(buckets, _P99), 4)}
        for verb, buckets in sorted(after.since(before).items())
        if observations(buckets)
    }


def api_codes(found: Found) -> dict[str, int]:
    """Answers of the API server by status code, as it counted them during the load."""
    return found.api[1].codes_since(found.api[0]) if found.api is not None else {}


def _wait(name: str, found: Found, waits: Sequence[MeasuredWait], changes_spec: bool) -> Measured:
    if name != "assigned" and not found.prepared.measures_ready:
        return _silent_kind(found)
    if name == "changed" and not changes_spec:
        return Measured(None, reason="the template has no ${version} in its spec", is_excused=True)
    values = [wait.took_s for wait in waits if wait.name == _WAITS[name]]
    if values:
        return Measured(percentile(values, _P99), len(values))
    if _OPERATION_OF[name] not in found.requests:
        return Measured(None, reason="the scenario asks for none", is_excused=True)
    return Measured(None, reason="the watch saw none")


def _at_end(found: Found, count: int) -> Measured:
    if not found.objects_at_end:
        return Measured(None, reason="the watch saw no object")
    return Measured(count, found.objects_at_end)


def _silent_kind(found: Found) -> Measured:
    reason = f"{found.prepared.resource.kind} has neither observedGeneration nor a Ready condition"
    return Measured(None, reason=reason, is_excused=True)


def _histogram(buckets: Buckets) -> Measured:
    value = bucket_quantile(buckets, _P99)
    if math.isnan(value):
        return Measured(None, reason="no replica's metrics were read, or they count none")
    return Measured(value, observations(buckets))


def _from_locust(times: Mapping[str, int], share: float) -> float:
    """A percentile of locust's {milliseconds: count}, in seconds."""
    wanted, so_far = share * sum(times.values()), 0
    for milliseconds, count in sorted((float(ms), count) for ms, count in times.items()):
        so_far += count
        if so_far >= wanted:
            return milliseconds / 1000
    return math.nan
