"""`python -m benchmarks.neighbour`: latencies of other clients of the API server while the sharder writes labels.

A probe reads and patches one ConfigMap, 20 times a second each: beside nothing, beside wrk with 1 to 64 connections
that send the sharder's own patches, and beside the sharder in each pace; alternating on one real kube-apiserver.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

from benchmarks.measuring.observations import NotSeen
from benchmarks.measuring.planes import make_account
from benchmarks.measuring.probe import Probe, probing
from benchmarks.measuring.report import Goal, round_off
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.sharders import assign_all, assign_by_wrk, owners_on, set_owners, sharding
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, RING, Testbed, open_testbed
from devcluster.flag_values import count
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from loadtest.quantiles import percentile
from sharder.ringspec.spec import Pace

IDLE_S: Final = 10.0
PER_S: Final = 20.0
LONGEST_S: Final = 30.0
"""Of one run of wrk."""
SETTLED_S: Final = 1.0
"""The first so many seconds of a run do not count, a quarter of it at most: the limit finds its place."""


def goal(what: str, *, least: float | None = None, most: float | None = None, unit: str = "%") -> Goal:
    return Goal("loads", what, unit, least=least, most=most)


GOALS: Final = {
    "background-p50": goal("Background: the probe's p50, of idle", most=1.5, unit="x"),
    "background-rate": goal("Background: patches, of wrk's best", least=60),
    "normal-p50": goal("Normal: the probe's p50, of idle", most=3, unit="x"),
    "normal-rate": goal("Normal: patches, of wrk's best", least=75),
    "urgent-p50": goal("Urgent: the probe's p50, of idle", most=5, unit="x"),
    "urgent-p99": goal("Urgent: the probe's p99, of idle", most=6, unit="x"),
    "urgent-rate": goal("Urgent: patches, of wrk's best", least=80),
    **{
        f"{pace.value.lower()}-curve": goal(
            f"{pace.value}: patches, of wrk's at the same p99 of the probe", least=80
        )
        for pace in Pace
    },
}


class Flags(Options):
    rounds: int
    connections: list[int]


@dataclass
class Beside:
    """The probe's waits beside one load, run by run; milliseconds, and patches per second of the load."""

    name: str
    per_s: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)
    """Writes that the sharder let be under way at the end of each run."""
    p50_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    p99_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, probe: Probe, since: float, until: float, per_s: float = 0.0) -> None:
        """A run from *since* to *until* at *per_s*."""
        self.per_s.append(per_s)
        answers = probe.between(since + min(SETTLED_S, (until - since) / 4), until)
        for verb in ("GET", "PATCH"):
            waits = [1000 * answer.took_s for answer in answers if answer.verb == verb]
            if not waits:
                raise NotSeen(f"the probe sent no {verb} beside {self.name}: measure with more --objects")
            self.p50_ms[verb].append(percentile(waits, 0.5))
            self.p99_ms[verb].append(percentile(waits, 0.99))

    @property
    def rate(self) -> float:
        return statistics.median(self.per_s)

    def p50(self, verb: str) -> float:
        return statistics.median(self.p50_ms[verb])

    def p99(self, verb: str) -> float:
        return statistics.median(self.p99_ms[verb])

    @property
    def worst_p99(self) -> float:
        """Of reads and patches the slower."""
        return max(self.p99("GET"), self.p99("PATCH"))

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.rate),
            **{f"{verb}_p50_ms": round_off(self.p50(verb)) for verb in self.p50_ms},
            **{f"{verb}_p99_ms": round_off(self.p99(verb)) for verb in self.p99_ms},
            "allowed": self.allowed,
            "runs": {"per_s": self.per_s, "p50_ms": dict(self.p50_ms), "p99_ms": dict(self.p99_ms)},
        }

    def __str__(self) -> str:
        waits = ", ".join(f"{verb} {self.p50(verb):.1f} / {self.p99(verb):.0f} ms" for verb in self.p50_ms)
        return f"{self.name}: {self.rate:,.0f}/s, {waits}"


def main() -> int:
    def numbers(text: str) -> list[int]:
        if not all(part.strip().isdigit() for part in text.split(",")):
            raise argparse.ArgumentTypeError("write numbers with commas between them, such as 1,8,64")
        return [int(part) for part in text.split(",")]

    parser = make_parser("neighbour", __doc__)
    add = parser.add_argument
    add("--objects", type=count, default=8_000, help="objects, and patches of each run")
    add("--rounds", type=count, default=3, help="rounds over all loads")
    add("--connections", type=numbers, default="1,2,4,8,16,64", help="of wrk, one run each")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("neighbour", GOALS, options, partial(measure, options), needs_wrk=True)


async def measure(options: Flags, run: Run) -> None:
    """Every second round runs backwards, because a server that works becomes slower. Raises: BinariesMissing."""
    idle = Beside("idle")
    wrk = {count: Beside(f"wrk, {count}") for count in options.connections}
    ours = {pace: Beside(pace.value) for pace in Pace}
    async with open_testbed(run.directory, is_real=options.is_real, objects=options.objects) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        account = await make_account(testbed.plane, testbed.client, "neighbour", namespace=LEASES_IN)
        await testbed.stand_ins.join(MEMBERS)
        with run.row("loads"):
            async with probing(
                account.kubeconfig, LEASES_IN, run.directory, per_s=PER_S, clock=testbed.clock
            ) as probe:
                for number in range(options.rounds):
                    await set_owners(testbed, run, {})
                    await beside_nothing(testbed, run, probe, idle)
                    loads: list[int | Pace] = [*wrk, *ours]
                    for load in loads if number % 2 == 0 else reversed(loads):
                        await set_owners(testbed, run, {})
                        if isinstance(load, Pace):
                            await beside_sharder(testbed, run, probe, load, ours[load])
                        else:
                            await beside_wrk(testbed, run, probe, load, wrk[load])
                    run.console.say("\n".join(map(str, [idle, *wrk.values(), *ours.values()])))
            note_figures(run, idle, list(wrk.values()), ours)
        run.detail("loads", **{one.name: one.details() for one in (idle, *wrk.values(), *ours.values())})


async def beside_nothing(testbed: Testbed, run: Run, probe: Probe, idle: Beside) -> None:
    since = testbed.clock.now()
    with run.console.counting("nothing beside the probe", 0):
        await asyncio.sleep(IDLE_S)
    idle.note(probe, since, testbed.clock.now())


async def beside_wrk(testbed: Testbed, run: Run, probe: Probe, connections: int, beside: Beside) -> None:
    owners = owners_on(testbed, testbed.stand_ins.shards)
    limit = await assign_by_wrk(
        testbed, run, owners, testbed.stock.names, connections=connections, limit_s=LONGEST_S
    )
    beside.note(probe, limit.instants[0], limit.instants[-1], limit.per_s_while_writing)


async def beside_sharder(testbed: Testbed, run: Run, probe: Probe, pace: Pace, beside: Beside) -> None:
    patch = MergePatch({"spec": {"pace": pace.value}})
    await testbed.client.patch(CONTROLLER_RINGS, RING, patch, type=bytes)
    async with sharding(testbed, row="neighbour") as sharder:
        written = await assign_all(testbed, run, sharder)
        line = f'ringleader_write_limit{{pace="{pace.value}"}}'
        beside.allowed.append(await sharder.running.metric(line) or 0.0)
    beside.note(probe, written.instants[0], written.instants[-1], written.per_s_while_writing)


def note_figures(run: Run, idle: Beside, wrk: Sequence[Beside], ours: dict[Pace, Beside]) -> None:
    best = max(one.rate for one in wrk)
    curve = [(one.worst_p99, one.rate) for one in wrk]
    for pace, one in ours.items():
        name = pace.value.lower()
        run.figure(f"{name}-p50", max(one.p50(verb) / idle.p50(verb) for verb in one.p50_ms), str(one))
        if f"{name}-p99" in GOALS:
            run.figure(f"{name}-p99", max(one.p99(verb) / idle.p99(verb) for verb in one.p99_ms), str(one))
        run.figure(f"{name}-rate", 100 * one.rate / best, f"{one.rate:,.0f}/s of {best:,.0f}/s")
        theirs = rate_at(one.worst_p99, curve)
        how = f"{one.rate:,.0f}/s of {theirs:,.0f}/s at {one.worst_p99:.0f} ms"
        run.figure(f"{name}-curve", 100 * one.rate / theirs, how)


def rate_at(p99_ms: float, curve: Sequence[tuple[float, float]]) -> float:
    """The rate of a load generator at *p99_ms* of the probe, between the measured points of (p99, rate).

    A point that is slower than one with a lower p99 counts as that one. Outside the points: the nearest one's rate.
    """
    points = sorted(curve)
    rates = list(accumulate((rate for _, rate in points), max))
    waits = [wait for wait, _ in points]
    if p99_ms <= waits[0]:
        return rates[0]
    for (before, lower), (after, upper) in pairwise(zip(waits, rates, strict=True)):
        if p99_ms <= after:
            return lower + (upper - lower) * (p99_ms - before) / (after - before)
    return rates[-1]


if __name__ == "__main__":
    sys.exit(main())
