"""`python -m benchmarks.runtime`: the runtime beside kopf, the kubernetes package and controller-runtime."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from rich.console import Console

from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, add_rows, chosen, make_parser, run_benchmark
from benchmarks.measuring.testbed import LEASE_S, open_testbed
from benchmarks.runtime import programs
from benchmarks.runtime.changing import measure_events, measure_renewals, measure_writes
from benchmarks.runtime.programs import Candidate, controller_runtime, our_forms
from benchmarks.runtime.starting import measure_rates, measure_stall, measure_start
from devcluster.flag_values import amount, count
from devcluster.real.build_progress import ConsoleProgress

ROWS: Final = ("start", "rate", "event", "stall", "write", "lease")
"""In the order in which they run."""
_LOADS: Final = {
    "ours-raw": "ringleader, raw",
    "ours-compressed": "ringleader, compressed",
    "ours-metadata": "ringleader, metadata only",
    "go": "controller-runtime",
    "go-metadata": "controller-runtime, metadata only",
    "kopf": "kopf",
    "kubernetes": "kubernetes SharedInformer",
}
"""Lines that show all candidates side by side."""


def beside_list(what: str) -> Goal:
    return Goal("start", what, "x the plain LIST", most=1.5)


def beside_go(what: str, most: float) -> Goal:
    return Goal("start", what, "x controller-runtime", most=most)


GOALS: Final = {
    "start-raw-list": beside_list("start until every object was reconciled, stored raw"),
    "start-raw-go": beside_go("the same beside controller-runtime", 0.5),
    "start-compressed-list": beside_list("start until every object was reconciled, stored compressed"),
    "start-compressed-go": beside_go("the same beside controller-runtime", 0.5),
    "rss-raw": Goal("start", "peak RSS, full objects stored raw", "MB", most=250),
    "rss-compressed": Goal("start", "peak RSS, full objects stored compressed", "MB", most=120),
    "metadata-go": beside_go("start, metadata only", 1),
    "metadata-rss": beside_go("peak RSS, metadata only", 0.25),
    **{f"load-{key}": Goal("start", f"start of {name}", "s") for key, name in _LOADS.items()},
    "rate-raw": Goal("rate", "no-op reconciles with a cached read, raw", "/s per core", least=100_000),
    "rate-model": Goal("rate", "no-op reconciles, model decoded", "/s per core", least=50_000),
    "rate-kopf": Goal("rate", "no-op reconciles, raw, beside kopf", "x kopf", least=20),
    "event-p50": Goal("event", "event on the socket to begin of reconcile, p50", "ms", most=2),
    "event-p99": Goal("event", "event on the socket to begin of reconcile, p99", "ms", most=10),
    "event-real": Goal("event", "answer to a PATCH to begin of reconcile, p50", "ms"),
    "stall": Goal("stall", "worst stall of the event loop during bulk load", "ms", most=50),
    "write": Goal("write", "reconciles with one fenced status write", "% of the limit", least=90),
    "lease": Goal("lease", "Lease renewals late by more than a second, full load", "renewals", most=0),
}


class Flags(Options):
    rounds: int
    reconciles: int
    samples: int
    limit_s: float
    connections: int
    minutes: float
    lease_s: int


def main() -> int:
    parser = make_parser("runtime", __doc__)
    add_rows(parser, ROWS)
    add = parser.add_argument
    add("--objects", type=count, default=100_000, help="objects that every candidate loads")
    add("--rounds", type=count, default=2, help="rounds over the candidates of a row")
    add("--reconciles", type=count, default=500_000, help="reconciles counted for a rate, at least")
    add("--samples", type=count, default=1_000, help="events of the list server; a fifth as many PATCHes")
    add("--limit-s", type=amount, default=25.0, help="longest run of wrk, in seconds")
    add("--connections", type=count, default=64, help="connections of wrk, and workers beside it")
    add("--minutes", type=amount, default=10.0, help="how long the Lease is watched under full load")
    add("--lease-s", type=count, default=LEASE_S, help="duration of that Lease, in seconds")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark(
        "runtime", GOALS, options, partial(measure, options), needs_wrk="write" in chosen(options, ROWS)
    )


async def measure(options: Flags, run: Run) -> None:
    """All chosen rows. The objects are as they were made before each. Raises: BinariesMissing."""
    rows = chosen(options, ROWS)
    go: list[Candidate] = []
    if "start" in rows:
        go = await asyncio.to_thread(controller_runtime, ConsoleProgress(Console(stderr=True)))
    async with open_testbed(
        run.directory,
        is_real=options.is_real,
        objects=options.objects,
        lease_s=options.lease_s,
        has_ring=False,
    ) as testbed:
        await run.read_versions(testbed.plane, testbed.client, "kopf", "kubernetes")
        run.versions["controller-runtime"] = programs.go_version()
        with run.console.counting("creating the objects", options.objects) as tick:
            await testbed.stock.set({}, tick)
        kopf = programs.kopf()
        candidates = [*our_forms(), *go, kopf, programs.kubernetes_informer()]
        measures: dict[str, Callable[[], Awaitable[None]]] = {
            "start": partial(measure_start, testbed, run, candidates, rounds=options.rounds),
            "rate": partial(
                measure_rates, testbed, run, kopf, rounds=options.rounds, reconciles=options.reconciles
            ),
            "event": partial(measure_events, testbed, run, samples=options.samples),
            "stall": partial(measure_stall, testbed, run, rounds=options.rounds),
            "write": partial(
                measure_writes,
                testbed,
                run,
                rounds=options.rounds,
                connections=options.connections,
                limit_s=options.limit_s,
            ),
            "lease": partial(
                measure_renewals,
                testbed,
                run,
                minutes=options.minutes,
                lease_s=options.lease_s,
                workers=options.connections,
            ),
        }
        for key in rows:
            with run.row(key):
                await measures[key]()


if __name__ == "__main__":
    sys.exit(main())
