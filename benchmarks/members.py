"""`python -m benchmarks.members`: one sharder and a thousand members that renew, on a real kube-apiserver.

The members hold Leases with our own Lease code and answer drains; they are one process, so that the server's cores
belong to the server. Measured: the sharder at rest, and how long one more member waits for its share.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Final

from benchmarks.measuring.processes import Cores
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.sharders import Sharder, join_one, owners_on, sharding
from benchmarks.measuring.testbed import Testbed, open_testbed
from devcluster.flag_values import amount, count
from loadtest.machine import family, rss_mb

GOALS: Final = {
    "rest-cpu": Goal("rest", "sharder at rest beside renewals", "% of a core", most=10),
    "rest-rss": Goal("rest", "the same, RSS", "MB", most=80),
    "renewal": Goal("renewal", "CPU of the sharder for a renewal", "ms", most=0.3),
    "join": Goal("join", "one more member: from its Lease to the last object of its share", "s", most=5),
    "peak": Goal("peak", "peak RSS of the sharder", "MB"),
}
JOINED_WITHIN_S: Final = 60.0
PAUSED_S: Final = 0.5
"""Renewals that are under way are over then."""


class Flags(Options):
    members: int
    lease_s: int
    rest_s: float

    @property
    def renewals_per_s(self) -> float:
        return self.members * 3 / self.lease_s


def main() -> int:
    parser = make_parser("members", __doc__)
    add = parser.add_argument
    add("--members", type=count, default=1000, help="members that renew")
    add("--objects", type=count, default=10_000, help="objects on the ring")
    add("--lease-s", type=count, default=15, help="duration of the members' Leases")
    add("--rest-s", type=amount, default=60.0, help="seconds for which the rest is measured")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("members", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> None:
    """Raises: BinariesMissing, and faults that make the run impossible."""
    async with open_testbed(
        run.directory, is_real=options.is_real, objects=options.objects, stand_in_lease_s=options.lease_s
    ) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        with run.console.counting("members join", options.members) as tick:
            for number in range(options.members):
                await testbed.stand_ins.join([f"member-{number:04}"])
                tick(1)
        with run.console.counting("creating the objects", options.objects) as tick:
            await testbed.stock.set(owners_on(testbed, testbed.stand_ins.shards), tick)
        async with sharding(testbed, row="rest") as sharder:
            with run.row("rest", "join", "renewal"):
                rest = await measure_rest(testbed, run, options, sharder)
                await measure_join(testbed, run, sharder)
                await measure_renewal(testbed, run, options, sharder, rest)
        run.figure("peak", testbed.peaks.by_row["rest"])


async def measure_rest(testbed: Testbed, run: Run, options: Flags, sharder: Sharder) -> float:
    """Percent of a core that the sharder uses while members renew and nothing else happens."""
    await sharder.wait_idle(within_s=300)
    cores = Cores(family(sharder.pid), testbed.clock)
    with run.console.counting("at rest", 0):
        await asyncio.sleep(options.rest_s)
    rest = 100 * cores.used()
    run.figure(
        "rest-cpu", rest, f"{options.members:,} members, {options.renewals_per_s:,.0f} renewals a second"
    )
    run.figure("rest-rss", rss_mb(sharder.pid))
    return rest


async def measure_renewal(testbed: Testbed, run: Run, options: Flags, sharder: Sharder, rest: float) -> None:
    """The sharder's CPU without renewals, for a third of a duration, which no member is missed for."""
    testbed.stand_ins.is_paused = True
    await asyncio.sleep(PAUSED_S)
    cores = Cores(family(sharder.pid), testbed.clock)
    await asyncio.sleep(options.lease_s / 3 - PAUSED_S)
    without = 100 * cores.used()
    testbed.stand_ins.is_paused = False
    run.figure(
        "renewal", 10 * (rest - without) / options.renewals_per_s, f"{without:.1f} % of a core without"
    )


async def measure_join(testbed: Testbed, run: Run, sharder: Sharder) -> None:
    """One more member joins while the others renew."""
    testbed.observations.start_over()
    took_s, share = await join_one(testbed, within_s=JOINED_WITHIN_S)
    await sharder.wait_idle(within_s=300)
    run.figure("join", took_s, f"{share} objects, {len(testbed.observations.log)} moved")


if __name__ == "__main__":
    sys.exit(main())
