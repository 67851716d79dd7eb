"""`python -m benchmarks.forged`: a tenant forges shard labels while honest objects are made and handed over.

On a real kube-apiserver without admission policies: thousands of objects bear names that no shard ever had, and one
object gets a new one hundreds of times a second. Measured: how long honest objects wait for their owner and for a
newcomer, and the sharder's memory and CPU.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from benchmarks.measuring.processes import Cores
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Asked, Run, amount, count, make_parser, run_benchmark
from benchmarks.measuring.sharders import Sharder, owners_on, sharding
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, Testbed, open_testbed
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
ONE_MORE: Final = "one-more"
AT_ONCE: Final = 2
"""Patches of the tenant under way: more of one object only conflict with each other."""


class Flags(Asked):
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
    asked = parser.parse_args(namespace=Flags())
    return run_benchmark("forged", GOALS, asked, partial(measure, asked))


async def measure(asked: Flags, run: Run) -> None:
    """Raises: BinariesMissing, and faults that make the run impossible."""
    async with open_testbed(run.directory, is_real=asked.is_real, objects=asked.objects) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        await testbed.stock.give({}, lambda _: None)  # its template, while no sharder writes to it
        await testbed.stand_ins.join(MEMBERS)
        with run.row("forged"):
            async with sharding(testbed, row="forged") as sharder:
                await sharder.wait_idle()
                with run.console.counting("forging names", asked.objects) as tick:
                    names = testbed.stock.names
                    forged = {name: f"forged-{number:05}-0badcafe" for number, name in enumerate(names)}
                    await testbed.stock.give(forged, tick)
                await measure_honest(testbed, run, asked, sharder)
            run.figure("peak", testbed.peaks.by_row["forged"])


async def measure_honest(testbed: Testbed, run: Run, asked: Flags, sharder: Sharder) -> None:
    """Honest objects are made, and handed over to a newcomer, while one object is relabelled all the time."""
    testbed.sightings.start_over()
    cores = Cores(family(sharder.pid), testbed.clock)
    async with relabelling(testbed, asked.per_s) as forger:
        waits_ms = await make_honest(testbed, run, asked)
        handed_over_s, share = await hand_over(testbed, list(waits_ms))
        used, relabels = cores.used(), forger.rate()
    leases, _ = await Leases(testbed.client, LEASES_IN).list()
    known = [wait for wait in waits_ms.values() if wait is not None]
    left = len(waits_ms) - len(known)
    run.figure("assign-p50", percentile(known, 0.5) if known else None, f"{len(known):,} objects")
    run.figure(
        "assign-p99",
        percentile(known, 0.99) if known and not left else None,
        f"{left} without an owner" if left else f"at most {max(known):.0f} ms",
    )
    run.figure("handed-over", handed_over_s, f"{share} objects")
    run.figure("cpu", 100 * used, f"{asked.objects:,} forged names")
    run.figure("relabels", relabels, f"{asked.per_s:g} wanted")
    run.figure("leases", len(leases))


async def make_honest(testbed: Testbed, run: Run, asked: Flags) -> dict[str, float | None]:
    """Milliseconds that each honest object waited for an owner; None: longer than the benchmark waits."""
    shards = frozenset(testbed.stand_ins.shards.values())
    created_at: dict[str, float] = {}

    async def create(number: int) -> None:
        name = f"honest-{number:05}"
        created_at[name] = await testbed.create(name)

    began_at = testbed.clock.now()
    with run.console.counting("honest objects", asked.honest) as tick:
        async with asyncio.timeout(CREATED_WITHIN_S), asyncio.TaskGroup() as tasks:
            for number in range(asked.honest):
                await asyncio.sleep(began_at + number / asked.honest_per_s - testbed.clock.now())
                tasks.create_task(create(number), name="honest object")
                tick(1)
    try:
        await wait_for(
            lambda: all(testbed.sightings.owner_of(name) in shards for name in created_at),
            "every honest object to be assigned",
            within_s=ASSIGNED_WITHIN_S,
        )
    except NotSeen as error:
        run.console.say(str(error))
    assigned_at: dict[str, float] = {}
    for change in testbed.sightings.gained(shards):
        assigned_at.setdefault(change.name, change.at)
    return {
        name: max(0.0, assigned_at[name] - at) * 1000 if name in assigned_at else None
        for name, at in created_at.items()
    }


async def hand_over(testbed: Testbed, honest: list[str]) -> tuple[float | None, int]:
    """Seconds that a newcomer waits for its share of the honest objects, and the size of that share."""
    seen, began_at = testbed.sightings, testbed.clock.now()
    await testbed.stand_ins.join([ONE_MORE])
    newcomer = testbed.stand_ins.shards[ONE_MORE]
    owners = owners_on(testbed, testbed.stand_ins.shards, honest)
    share = frozenset(name for name, owner in owners.items() if owner == newcomer)
    try:
        await wait_for(
            lambda: all(seen.owner_of(name) == newcomer for name in share),
            f"{ONE_MORE} to own its {len(share)} objects",
            within_s=HANDED_OVER_WITHIN_S,
        )
    except NotSeen:
        return None, len(share)
    last_at = max(change.at for change in seen.gained([newcomer]) if change.name in share)
    return last_at - began_at, len(share)


class Forger:
    """Gives one object another name, *per_s* times a second, while `run` runs."""

    def __init__(self, client: Client, testbed: Testbed, name: str, per_s: float) -> None:
        self._client = client
        self._testbed = testbed
        self._name = name
        self._per_s = per_s
        self._began_at = testbed.clock.now()
        self._sent = self._done = 0

    def rate(self) -> float:
        """Names per second so far."""
        return round(self._done / max(0.001, self._testbed.clock.now() - self._began_at), 1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._forge(), name="forger")

    async def _forge(self) -> None:
        while True:
            self._sent += 1
            labels = {self._testbed.keys.shard: f"again-{self._sent:07}-0badcafe"}
            due_at = self._began_at + self._sent / self._per_s
            await asyncio.sleep(max(0.0, due_at - self._testbed.clock.now()))
            try:
                await self._client.patch(
                    self._testbed.resource,
                    self._name,
                    MergePatch({"metadata": {"labels": labels}}),
                    namespace=self._testbed.namespace,
                    type=bytes,
                    metadata_only=True,
                )
            except KubeError:
                continue
            self._done += 1


@asynccontextmanager
async def relabelling(testbed: Testbed, per_s: float) -> AsyncIterator[Forger]:
    """One object more that is relabelled until the block ends."""
    name = "relabelled"
    await testbed.create(name)
    async with Client(testbed.cluster, user_agent="ringleader-bench-forger") as client:
        forger = Forger(client, testbed, name, per_s)
        running = asyncio.create_task(forger.run(), name="forger")
        try:
            yield forger
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
