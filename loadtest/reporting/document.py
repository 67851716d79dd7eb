"""The report as one JSON document: verdict, figures, series per second, machine, versions, command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from loadtest.bridge import Count
from loadtest.inputs.slo import Line, has_passed
from loadtest.observing.observer import Observer, Wait
from loadtest.observing.sampler import Sampler
from loadtest.quantiles import percentile
from loadtest.reporting.figures import api_codes, api_rows, request_rows, wait_rows
from loadtest.run import Found, RunOptions


def document(
    options: RunOptions,
    found: Found,
    lines: Sequence[Line],
    *,
    observer: Observer,
    sampler: Sampler,
    counts: Sequence[Count],
    surroundings: dict[str, Any],
) -> dict[str, Any]:
    """Everything that the page shows and a program may want. Times are seconds of load."""
    failed = [happened for happened in found.happened if happened.has_failed]
    seconds = series(found, observer, sampler, counts)
    return {
        "passed": has_passed(list(lines)) and not failed,
        "verdict": [msgspec.to_builtins(line) for line in lines],
        "run": options.run,
        "scenario": options.schedule.scenario,
        "duration_s": options.schedule.duration_s,
        "peak_rate_per_s": options.schedule.peak_rate,
        "objects": options.objects,
        "objects_at_end": found.objects_at_end,
        "resource": found.resource.group_resource,
        "prefill_s": round(found.prefill_s, 2),
        "first_assigned_s": _rounded(found.first_assigned_s),
        "first_ready_s": _rounded(found.first_ready_s),
        "settled_s": round(found.ended_at - found.load_ended_at, 2),
        "left_unready": found.unready if found.measures_ready else None,
        "moved": len(observer.moves),
        "waits": wait_rows(observer.waits),
        "requests": request_rows(found.requests),
        "api_server": api_rows(found),
        "api_server_codes": api_codes(found),
        "api_server_reason": found.api_reason,
        "processes": [msgspec.to_builtins(peak) for peak in sampler.peaks()],
        "actions": [msgspec.to_builtins(happened) for happened in found.happened],
        "notices": found.notices,
        "witnesses": found.testimony.named,
        "series": seconds,
        **surroundings,
    }


def series(
    found: Found, observer: Observer, sampler: Sampler, counts: Sequence[Count]
) -> dict[str, list[float | None]]:
    """Figures per second of load and settling."""
    length = max(1, int(found.ended_at - found.started_at) + 1)
    begin = found.started_at
    by_name: dict[str, list[list[float]]] = {}
    for wait in observer.waits:
        _at(by_name.setdefault(wait.name, [[] for _ in range(length)]), wait, begin)
    shown: dict[str, list[float | None]] = {"second": list(range(length))}
    shown["operations"] = _rates(counts, length, begin, lambda count: count.requests)
    shown["failures"] = _rates(counts, length, begin, lambda count: count.failures)
    shown["users"] = _last(((count.at, count.users) for count in counts), length, begin)
    shown["moved"] = _counted(observer.moves, length, begin)
    for name, seconds in by_name.items():
        shown[f"{name}, p99 s"] = [
            round(percentile(values, 0.99), 4) if values else None for values in seconds
        ]
    memory = (
        (sample.at, sum(u.rss_bytes for u in sample.usage.values()) / 1e6) for sample in sampler.samples
    )
    shown["memory MB"] = _last(memory, length, begin)
    return shown


def command_line() -> str:
    """How this run was started."""
    return " ".join(["ringleader", "loadtest", *sys.argv[2 if sys.argv[1:2] == ["loadtest"] else 1 :]])


def _at(seconds: list[list[float]], wait: Wait, begin: float) -> None:
    index = int(wait.at - begin)
    if 0 <= index < len(seconds):
        seconds[index].append(wait.took_s)


def _counted(instants: Iterable[float], length: int, begin: float) -> list[float | None]:
    found: list[float | None] = [0.0] * length
    for at in instants:
        index = int(at - begin)
        if 0 <= index < length:
            found[index] = (found[index] or 0.0) + 1
    return found


def _rates(
    counts: Sequence[Count], length: int, begin: float, value: Callable[[Count], int]
) -> list[float | None]:
    """Per second, from sums at instants: spread over the seconds between two of them."""
    found: list[float | None] = [None] * length
    before_at, before = begin, 0
    for count in counts:
        took_s = count.at - before_at
        if took_s < 0.2:
            continue
        rate = max(0, value(count) - before) / took_s
        for second in range(int(before_at - begin), int(count.at - begin)):
            if 0 <= second < length:
                found[second] = round(rate, 1)
        before_at, before = count.at, value(count)
    return found


def _last(values: Iterable[tuple[float, float]], length: int, begin: float) -> list[float | None]:
    """The newest value in each second; that of the second before where there is none."""
    found: list[float | None] = [None] * length
    for at, value in values:
        if 0 <= (index := int(at - begin)) < length:
            found[index] = round(value, 1)
    for index in range(1, length):
        if found[index] is None:
            found[index] = found[index - 1]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
