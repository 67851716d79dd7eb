"""What a load test found: one JSON document, one table, one picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadtest.observer import Sample

KINDS: Mapping[str, str] = {
    "assigned": "created to assigned",
    "ready": "created to Ready",
    "updated": "updated to Ready",
}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least *share* of *values* do not exceed; NaN if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """Count, p50, p99 and max in seconds, by what was waited for."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for sample in samples:
        found[sample.what].append(sample.took_s)
    return {
        kind: {
            "count": len(values),
            "p50_s": round(percentile(values, 0.5), 4),
            "p99_s": round(percentile(values, 0.99), 4),
            "max_s": round(max(values), 4),
        }
        for kind, values in found.items()
        if values
    }


def requests_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What locust counted, by operation: requests, failures, and its own median and p99 in seconds."""
    return {
        str(row["name"]): {
            "requests": row["num_requests"],
            "failures": row["num_failures"],
            "p50_s": _from_histogram(row["response_times"], 0.5),
            "p99_s": _from_histogram(row["response_times"], 0.99),
        }
        for row in rows
    }


def _from_histogram(times: Mapping[str, int], share: float) -> float:
    """A percentile of locust's {milliseconds: count}, in seconds."""
    wanted = share * sum(times.values())
    so_far = 0
    for milliseconds, count in sorted((float(ms), count) for ms, count in times.items()):
        so_far += count
        if so_far >= wanted:
            return milliseconds / 1000
    return math.nan


def draw(samples: Sequence[Sample], path: Path, *, title: str) -> None:
    """A picture: every wait over time, and how they are distributed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (over_time, spread) = pyplot.subplots(
        1, 2, figsize=(12, 4.6), width_ratios=(2, 1), layout="constrained"
    )
    start = min((sample.at for sample in samples), default=0.0)
    colours = {
        "assigned": "#0072B2",
        "ready": "#E69F00",
        "updated": "#009E73",
    }  # Okabe-Ito: told apart by all
    for kind, label in KINDS.items():
        chosen = [sample for sample in samples if sample.what == kind]
        if not chosen:
            continue
        waits = sorted(sample.took_s * 1000 for sample in chosen)
        over_time.scatter(
            [sample.at - start for sample in chosen],
            [sample.took_s * 1000 for sample in chosen],
            s=9,
            alpha=0.6,
            color=colours[kind],
            label=f"{label} (p50 {percentile(waits, 0.5):.0f} ms, p99 {percentile(waits, 0.99):.0f} ms)",
        )
        spread.plot(waits, [(n + 1) / len(waits) for n in range(len(waits))], color=colours[kind])
    over_time.set(xlabel="seconds of load", ylabel="milliseconds", yscale="log")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    spread.set(
        xlabel="milliseconds", ylabel="share of waits that took no longer", xscale="log", ylim=(0, 1.02)
    )
    for axes in (over_time, spread):
        axes.grid(alpha=0.25)
    for axis in (over_time.yaxis, spread.xaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
