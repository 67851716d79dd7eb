"""A replica's metrics as one row of `top`: computed from two scrapes. Pure.

Sums over the controllers of a process: a row is a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

_RECONCILES: Final = "controller_runtime_reconcile_total"
_ERRORS: Final = "controller_runtime_reconcile_errors_total"
_BUSY: Final = "controller_runtime_active_workers"
_WORKERS: Final = "controller_runtime_max_concurrent_reconciles"
_DEPTH: Final = "workqueue_depth"
_LONGEST: Final = "workqueue_longest_running_processor_seconds"
_MEMORY: Final = "process_resident_memory_bytes"
_CPU: Final = "process_cpu_seconds_total"
_OBJECTS: Final = "ringleader_shard_objects"
_STARTED: Final = "process_start_time_seconds"
_WANTED: Final = frozenset(
    {_RECONCILES, _ERRORS, _BUSY, _WORKERS, _DEPTH, _LONGEST, _MEMORY, _CPU, _OBJECTS, _STARTED}
)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The numbers of one moment, *at* on our monotonic clock."""

    at: float
    values: Mapping[str, float] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        return self.values.get(name)


class Load(msgspec.Struct, rename="camel"):
    """What one replica does; None where its metrics do not say."""

    name: str
    shard: str
    reconciles_per_second: float | None = None
    errors_per_second: float | None = None
    queue: int | None = None
    busy_workers: int | None = None
    workers: int | None = None
    longest_seconds: float | None = None
    objects: int | None = None
    memory_bytes: int | None = None
    cpu_cores: float | None = None
    problem: str = ""


def read_metrics(text: str, *, at: float) -> Scrape:
    """The sums of what `top` shows in a page of metrics. Raises ValueError if it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name not in _WANTED:
                continue
            if sample.name == _LONGEST:
                sums[sample.name] = max(sums.get(sample.name, 0.0), sample.value)
            else:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    if not sums:
        raise ValueError("it has no metric of a replica")
    return Scrape(at, sums)


def load(name: str, shard: str, before: Scrape, now: Scrape) -> Load:
    """What happened between two scrapes of one process; of one that was started anew meanwhile no rates."""
    is_same = before.value(_STARTED) == now.value(_STARTED)

    def rate(metric: str) -> float | None:
        earlier, later = before.value(metric), now.value(metric)
        if metric == _ERRORS and now.value(_RECONCILES) is not None:
            later = later or 0.0  # there is no such series before the first error
        if not is_same or later is None or now.at <= before.at:
            return None
        return max(later - (earlier or 0.0), 0.0) / (now.at - before.at)

    def count(metric: str) -> int | None:
        value = now.value(metric)
        return None if value is None else int(value)

    return Load(
        name,
        shard,
        reconciles_per_second=rate(_RECONCILES),
        errors_per_second=rate(_ERRORS),
        queue=count(_DEPTH),
        busy_workers=count(_BUSY),
        workers=count(_WORKERS),
        longest_seconds=now.value(_LONGEST),
        objects=count(_OBJECTS),
        memory_bytes=count(_MEMORY),
        cpu_cores=rate(_CPU),
    )
