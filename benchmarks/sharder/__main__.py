"""`python -m benchmarks.sharder`: one sharder at 100,000 objects beside the limit of the API server.

Rows with stand-ins for shards come first; then one fleet of real replicas for the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, add_rows, chosen, make_parser, run_benchmark
from benchmarks.measuring.sharders import ByWrk, assign_by_wrk, owners_on, set_owners, sharding, within_limit
from benchmarks.measuring.testbed import Testbed, open_testbed
from benchmarks.measuring.wrk import Writes
from benchmarks.sharder.leading import measure_leader
from benchmarks.sharder.replicas import (
    Join,
    measure_restart,
    measure_term,
    note_join,
    own_all,
    replicas_of,
    watch_join,
)
from benchmarks.sharder.resting import measure_cpu, measure_rest
from benchmarks.sharder.writing import (
    measure_assignment,
    measure_guard,
    measure_new_objects,
    measure_takeover,
)
from devcluster.flag_values import amount, count

ROWS: Final = ("assign", "guard", "new", "leader", "cpu", "takeover", "rest", "join", "term", "restart")
"""In the order in which they run."""
NEED_WRK: Final = frozenset({"assign", "takeover", "join"})
NEED_REPLICAS: Final = ("join", "term", "restart")
PEAK_OF: Final = ("assign", "takeover", "join", "new")
"""Rows whose peak memory is judged."""
BACKGROUND: Final = 60
"""Percent of the rate of a load generator with 64 connections that the pace `Background` is to reach."""
GOALS: Final = {
    "assign": Goal("assign", "first assignment of all objects", "% of the limit", least=BACKGROUND),
    "guard": Goal(
        "guard", "first assignment: lost by the chart's admission policies", "% of the rate", most=2
    ),
    "takeover": Goal(
        "takeover",
        "take-over of a dead shard's objects, from the take to the last write",
        "% of the limit",
        least=75,
    ),
    "join": Goal(
        "join", "join of a 4th shard: objects passed on", "% of half the limit", least=0.75 * BACKGROUND
    ),
    "join-moves": Goal("join", "join: objects moved, of the ideal", "x", most=1.02),
    "join-in-flight": Goal("join", "join: handoffs in flight at most", "objects", most=1000),
    "new-p50": Goal("new", "one new object on an idle ring, p50", "ms", most=15),
    "new-p99": Goal("new", "one new object on an idle ring, p99", "ms", most=60),
    "peak": Goal("peak", "peak RSS of the sharder's processes", "MB", most=64),
    "rest": Goal("rest", "RSS at rest, largest to smallest number of objects", "% apart", most=10),
    "cpu": Goal("cpu", "CPU at rest, while others update", "% of a core", most=2),
    "leader-kill": Goal("leader", "kill -9 of the leader to the next write", "s", most=17),
    "leader-term": Goal("leader", "SIGTERM of the leader to the next write", "s", most=1),
    "term": Goal("term", "SIGTERM of a replica to the first reassignment", "s", most=0.3),
    "restart": Goal("restart", "container restarted to its objects being worked on", "s", most=3),
}


class Flags(Options):
    rounds: int
    guard_rounds: int
    limit_s: float
    connections: int
    samples: int
    rest_sizes: tuple[int, ...]


def main() -> int:
    parser = make_parser("sharder", __doc__)
    add_rows(parser, ROWS)
    add = parser.add_argument
    add("--objects", type=count, default=100_000, help="objects on the ring")
    add("--rounds", type=count, default=2, help="rounds of wrk and the sharder")
    add(
        "--guard-rounds",
        type=count,
        default=8,
        help="times that the sharder works without and under the guard",
    )
    add("--limit-s", type=amount, default=25.0, help="longest run of wrk, in seconds")
    add("--connections", type=count, default=64, help="connections of wrk")
    add("--samples", type=count, default=200, help="new objects on an idle ring")
    add("--rest-sizes", type=parse_sizes, default="1000,100000,1000000", help="objects of the memory at rest")
    options = parser.parse_args(namespace=Flags())
    needs_wrk = bool(NEED_WRK.intersection(chosen(options, ROWS)))
    return run_benchmark("sharder", GOALS, options, partial(measure, options), needs_wrk=needs_wrk)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of objects."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError("write at least two numbers above 0, such as 1000,1000000")
    return tuple(int(part) for part in parts)


async def measure(options: Flags, run: Run) -> None:
    """Raises: BinariesMissing, and faults that make every row impossible."""
    rows = chosen(options, ROWS)
    async with open_testbed(run.directory, is_real=options.is_real, objects=options.objects) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        await set_owners(testbed, run, {})
        by_wrk = partial(
            assign_by_wrk, testbed, run, connections=options.connections, limit_s=options.limit_s
        )
        names = within_limit(testbed, options.limit_s)
        stand_in_rows: dict[str, Callable[[Testbed, Run], Awaitable[None]]] = {
            "assign": partial(measure_assignment, by_wrk=by_wrk, names=names, rounds=options.rounds),
            "guard": partial(measure_guard, rounds=options.guard_rounds),
            "new": partial(measure_new_objects, samples=options.samples),
            "leader": measure_leader,
            "cpu": measure_cpu,
            "takeover": partial(measure_takeover, by_wrk=by_wrk),
            "rest": partial(measure_rest, sizes=options.rest_sizes),
        }
        for key, measured in stand_in_rows.items():
            if key in rows:
                with run.row(key):
                    await measured(testbed, run)
        await testbed.forget_shards()
        fleet_rows = [key for key in NEED_REPLICAS if key in rows]
        if fleet_rows:
            with run.row(*fleet_rows):
                limit = partial(limit_beside_join, testbed, run, by_wrk, names)
                await with_replicas(testbed, run, fleet_rows, limit)
        judged = {row: mb for row, mb in testbed.peaks.by_row.items() if row in PEAK_OF}
        if judged:
            how = ", ".join(f"{row} {mb:.1f}" for row, mb in judged.items())
            run.figure("peak", max(judged.values()), f"{how}; processes: {testbed.peaks.processes}")
        run.detail("peak", by_row={row: round(mb, 1) for row, mb in testbed.peaks.by_row.items()})


async def with_replicas(
    testbed: Testbed, run: Run, rows: Sequence[str], limit: Callable[[], Awaitable[Writes]]
) -> None:
    """The rows with real replicas; wrk before and after the join."""
    limits = [await limit()] if "join" in rows else []
    join: Join | None = None
    async with replicas_of(testbed, 3) as replicas:
        await own_all(testbed, run, replicas)
        async with sharding(testbed, row="join") as sharder:
            if "join" in rows:
                join = await watch_join(testbed, run, replicas, sharder)
            for key, measured in (("term", measure_term), ("restart", measure_restart)):
                if key in rows:
                    with run.row(key):
                        await measured(testbed, run, replicas, sharder)
    if join is not None:
        await testbed.forget_shards()
        limits.append(await limit())
        note_join(run, join, limits)


async def limit_beside_join(testbed: Testbed, run: Run, by_wrk: ByWrk, names: Sequence[str]) -> Writes:
    """wrk gives objects without owner to shards that do not exist."""
    await set_owners(testbed, run, {}, names=names)
    owners = owners_on(testbed, {f"absent-{number}": f"absent-{number}" for number in range(3)})
    return await by_wrk(owners, names)


if __name__ == "__main__":
    sys.exit(main())
