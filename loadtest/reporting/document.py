"""The report as one JSON document: verdict, figures, series per second, machine, versions, command."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from loadtest.bridge import CountMessage
from loadtest.inputs.slo import Line, has_passed
from loadtest.observing.observer import Observer
from loadtest.observing.sampler import Sampler
from loadtest.quantiles import percentile
from loadtest.reporting.figures import api_codes, api_rows, request_rows, wait_rows
from loadtest.run import Found, RunOptions

_STEPS: Final = 600
"""Points of time in a picture, at most."""


def document(
    options: RunOptions,
    found: Found,
    lines: Sequence[Line],
    *,
    observer: Observer,
    sampler: Sampler,
    counts: Sequence[CountMessage],
    surroundings: dict[str, Any],
) -> dict[str, Any]:
    """Everything that the page shows and a program may want. Times are seconds of load."""
    failed = [happened for happened in found.happened if happened.has_failed]
    seconds = series(found, observer, sampler, counts)
    return {
        "passed": has_passed(list(lines)) and not failed,
        "verdict": [msgspec.to_builtins(line) for line in lines],
        "run": options.run,
        "scenario": found.schedule.scenario,
        "duration_s": found.schedule.duration_s,
        "peak_rate_per_s": found.schedule.peak_rate,
        "objects": found.objects,
        "objects_at_end": found.objects_at_end,
        "resource": found.prepared.resource.group_resource,
        "prefill_s": round(found.prepared.prefill_s, 2),
        "first_assigned_s": _rounded(found.prepared.first_assigned_s),
        "first_ready_s": _rounded(found.prepared.first_ready_s),
        "settled_s": round(found.ended_at - found.load_ended_at, 2),
        "left_unready": found.unready if found.prepared.measures_ready else None,
        "moved": len(observer.moves),
        "waits": wait_rows(found.waits),
        "requests": request_rows(found.requests),
        "api_server": api_rows(found),
        "api_server_codes": api_codes(found),
        "api_server_reason": found.api_reason,
        "processes": [msgspec.to_builtins(peak) for peak in sampler.peaks()],
        "actions": [msgspec.to_builtins(happened) for happened in found.happened],
        "notices": found.notices,
        "findings": found.testimony.named,
        "series": seconds,
        **surroundings,
    }


def series(
    found: Found, observer: Observer, sampler: Sampler, counts: Sequence[CountMessage]
) -> dict[str, list[float | None]]:
    """Figures over load and settling, per second; of long runs per some seconds."""
    grid = Grid(found.started_at, found.ended_at)
    by_name: dict[str, list[list[float]]] = {}
    for wait in found.waits:
        steps = by_name.setdefault(wait.name, [[] for _ in range(grid.count)])
        if (index := grid.index(wait.at)) is not None:
            steps[index].append(wait.took_s)
    memory = (
        (sample.at, sum(u.rss_bytes for u in sample.usage.values()) / 1e6) for sample in sampler.samples
    )
    return {
        "second": [index * grid.width_s for index in range(grid.count)],
        "operations": grid.rates((count.at, count.requests) for count in counts),
        "failures": grid.rates((count.at, count.failures) for count in counts),
        "users": grid.last((count.at, count.users) for count in counts),
        "moved": grid.per_second(observer.moves),
        **{
            f"{name}, p99 s": [round(percentile(values, 0.99), 4) if values else None for values in steps]
            for name, steps in by_name.items()
        },
        "memory MB": grid.last(memory),
    }


class Grid:
    """Steps of equal width over a span of the clock: whole seconds, as many as a picture can show."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin = begin
        self.width_s = max(1, math.ceil((end - begin) / _STEPS))
        self.count = int((end - begin) / self.width_s) + 1

    def index(self, at: float) -> int | None:
        """The step of the instant *at*; None outside."""
        index = math.floor((at - self._begin) / self.width_s)
        return index if 0 <= index < self.count else None

    def per_second(self, instants: Iterable[float]) -> list[float | None]:
        """How many of *instants* lie in each step, per second."""
        counted = Counter(self.index(at) for at in instants)
        return [round(counted[index] / self.width_s, 2) for index in range(self.count)]

    def rates(self, sums: Iterable[tuple[float, float]]) -> list[float | None]:
        """Growth per second of a sum, which is spread over the steps between two readings."""
        found: list[float | None] = [None] * self.count
        before_at, before = self._begin, 0.0
        for at, value in sums:
            if at - before_at < self.width_s / 5:
                continue
            first, last = self.index(before_at) or 0, self.index(at)
            for index in range(first, self.count if last is None else max(last, first + 1)):
                found[index] = round(max(0.0, value - before) / (at - before_at), 1)
            before_at, before = at, value
        return found

    def last(self, values: Iterable[tuple[float, float]]) -> list[float | None]:
        """The newest value in each step; that of the step before where there is none."""
        found: list[float | None] = [None] * self.count
        for at, value in values:
            if (index := self.index(at)) is not None:
                found[index] = round(value, 1)
        for index in range(1, self.count):
            if found[index] is None:
                found[index] = found[index - 1]
        return found


def command_line() -> str:
    """How this run was started."""
    return " ".join(["ringleader", "loadtest", *sys.argv[2 if sys.argv[1:2] == ["loadtest"] else 1 :]])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
