"""`python -m benchmarks.forged`: a tenant forges shard labels while honest objects are made and handed over.

On a real kube-apiserver without admission policies: thousands of objects bear names that no shard ever had, and one
object gets a new one hundreds of times a second. Measured: how long honest objects wait for their owner and for a
newcomer, and the sharder's memory and CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from benchmarks.measuring.observations import NotSeen, wait_for
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.senders import send_steadily
from benchmarks.measuring.sharders import Sharder, join_one, sharding
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, Testbed, open_testbed
from devcluster.flag_values import amount, count
from kubeio.errors import KubeError
from kubeio.leases.lease import Leases
from kubeio.patch import MergePatch
from kubeio.rest.client import Client
from loadtest.machine import family
from loadtest.quantiles import percentile

GOALS: Final = {
    "assign-p50": Goal("forged", "honest object: from its creation to its owner, p50", "ms"),
    "assign-p99": Goal("forged", "the same, p99", "ms", most=2_000),
    "handed-over": Goal("forged", "one more member: honest objects handed over to it", "s", most=30),
    "peak": Goal("forged", "peak RSS of the sharder", "MB", most=80),
    "cpu": Goal("forged", "CPU of the sharder meanwhile", "% of a core"),
    "relabels": Goal("forged", "labels forged on one object", "1/s"),
    "leases": Goal("forged", "Leases in the ring's namespace at the end", "Leases", most=300),
}
CREATED_WITHIN_S: Final = 120.0
ASSIGNED_WITHIN_S: Final = 60.0
HANDED_OVER_WITHIN_S: Final = 120.0
AT_ONCE: Final = 2
"""Patches of the tenant under way: more of one object only conflict with each other."""


class Flags(Options):
    per_s: float
    honest: int
    honest_per_s: float


def main() -> int:
    parser = make_parser("forged", __doc__, is_strict=True)
    add = parser.add_argument
    add("--forged", dest="objects", type=count, default=16_000, help="objects with a forged name each")
    add("--per-s", type=amount, default=270.0, help="new names per second on one object")
    add("--honest", type=count, default=2_000, help="honest objects")
    add("--honest-per-s", type=amount, default=40.0, help="honest objects made per second")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("forged", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> None:
    """Raises: BinariesMissing, and faults that make the run impossible."""
    async with open_testbed(run.directory, is_real=options.is_real, objects=options.objects) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        await testbed.stock.give({}, lambda _: None)  # its template, while no sharder writes to it
        await testbed.stand_ins.join(MEMBERS)
        with run.row("forged"):
            async with sharding(testbed, row="forged") as sharder:
                await sharder.wait_idle()
                with run.console.counting("forging names", options.objects) as tick:
                    names = testbed.stock.names
                    forged = {name: f"forged-{number:05}-0badcafe" for number, name in enumerate(names)}
                    await testbed.stock.give(forged, tick)
                await measure_honest(testbed, run, options, sharder)
            run.figure("peak", testbed.peaks.by_row["forged"])


async def measure_honest(testbed: Testbed, run: Run, options: Flags, sharder: Sharder) -> None:
    """Honest objects are made, and handed over to a newcomer, while one object is relabelled all the time."""
    testbed.observations.start_over()
    cores = Cores(family(sharder.pid), testbed.clock)
    async with relabelling(testbed, options.per_s) as rate:
        waits_ms = await make_honest(testbed, run, options)
        handed_over = await hand_over(testbed, list(waits_ms))
        used, relabels = cores.used(), rate()
    leases, _ = await Leases(testbed.client, LEASES_IN).list()
    known = [wait for wait in waits_ms.values() if wait is not None]
    left = len(waits_ms) - len(known)
    run.figure("assign-p50", percentile(known, 0.5) if known else None, f"{len(known):,} objects")
    run.figure(
        "assign-p99",
        percentile(known, 0.99) if known and not left else None,
        f"{left} without an owner" if left else f"at most {max(known):.0f} ms",
    )
    run.figure("handed-over", *handed_over)
    run.figure("cpu", 100 * used, f"{options.objects:,} forged names")
    run.figure("relabels", relabels, f"{options.per_s:g} wanted")
    run.figure("leases", len(leases))


async def make_honest(testbed: Testbed, run: Run, options: Flags) -> dict[str, float | None]:
    """Milliseconds that each honest object waited for an owner; None: longer than the benchmark waits."""
    shards = frozenset(testbed.stand_ins.shards.values())
    created_at: dict[str, float] = {}

    async def create(number: int) -> None:
        name = f"honest-{number:05}"
        created_at[name] = await testbed.create(name)

    began_at = testbed.clock.now()
    with run.console.counting("honest objects", options.honest) as tick:
        async with asyncio.timeout(CREATED_WITHIN_S), asyncio.TaskGroup() as tasks:
            for number in range(options.honest):
                await asyncio.sleep(began_at + number / options.honest_per_s - testbed.clock.now())
                tasks.create_task(create(number), name="honest object")
                tick(1)
    try:
        await wait_for(
            lambda: all(testbed.observations.owner_of(name) in shards for name in created_at),
            "every honest object to be assigned",
            within_s=ASSIGNED_WITHIN_S,
        )
    except NotSeen as error:
        run.console.say(str(error))
    assigned_at: dict[str, float] = {}
    for change in testbed.observations.gained(shards):
        assigned_at.setdefault(change.name, change.at)
    return {
        name: max(0.0, assigned_at[name] - at) * 1000 if name in assigned_at else None
        for name, at in created_at.items()
    }


async def hand_over(testbed: Testbed, honest: list[str]) -> tuple[float | None, str]:
    """Seconds that a newcomer waits for its share of the honest objects, and what they are."""
    try:
        took_s, share = await join_one(testbed, within_s=HANDED_OVER_WITHIN_S, names=honest)
    except NotSeen as error:
        return None, str(error)
    return took_s, f"{share} objects"


@asynccontextmanager
async def relabelling(testbed: Testbed, per_s: float) -> AsyncIterator[Callable[[], float]]:
    """One object more gets another name *per_s* times a second until the block ends; gives the rate so far."""
    name, accepted, began_at = "relabelled", 0, testbed.clock.now()
    await testbed.create(name)
    async with Client(testbed.cluster, user_agent="ringleader-bench-forger") as client:

        async def forge(number: int) -> None:
            nonlocal accepted
            patch = MergePatch({"metadata": {"labels": {testbed.keys.shard: f"again-{number:07}-0badcafe"}}})
            with contextlib.suppress(KubeError):
                await client.patch(
                    testbed.resource,
                    name,
                    patch,
                    namespace=testbed.namespace,
                    type=bytes,
                    metadata_only=True,
                )
                accepted += 1

        running = asyncio.create_task(send_steadily(forge, per_s=per_s, at_once=AT_ONCE), name="forger")
        try:
            yield lambda: round(accepted / max(0.001, testbed.clock.now() - began_at), 1)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
