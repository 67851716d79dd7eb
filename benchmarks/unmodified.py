"""`python -m benchmarks.unmodified`: a controller on controller-runtime alone, and as three replicas behind proxies.

Memory and start of each beside that of the one that has all objects. The objects' owners are those of a ring of three;
no sharder runs, so nothing moves while something is measured. Two cores cannot show a throughput of three.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.measuring.observations import NotSeen, wait_for
from benchmarks.measuring.processes import Running, start
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.senders import spread
from benchmarks.measuring.stock import Tick
from benchmarks.measuring.testbed import LEASES_IN, RING, Testbed, open_testbed
from benchmarks.runtime.programs import (
    GO_PROGRAM,
    START_WITHIN_S,
    Candidate,
    Loaded,
    Order,
    Records,
    controller_runtime,
    measured,
)
from devcluster.flag_values import count
from devcluster.real.build_progress import ConsoleProgress
from kubeio.leases.lease import Leases
from kubeio.patch import MergePatch
from loadtest.machine import family, memory_kb
from ring import HashRing, object_key

MEMBERS: Final = ("replica-0", "replica-1", "replica-2")
AT_ONCE: Final = 32
GOALS: Final = {
    "alone-start": Goal("alone", "start until every object was reconciled", "s"),
    "alone-memory": Goal("alone", "peak RSS", "MB"),
    "each-start": Goal(
        "replicas",
        "restart of one of three, from its end until its objects were reconciled",
        "x alone",
        most=0.6,
    ),
    "each-memory": Goal("replicas", "peak RSS of its controller", "x alone", most=0.45),
    "labelled-memory": Goal("labelled", "peak RSS alone, with the objects as a fleet leaves them", "MB"),
    "each-labelled": Goal("labelled", "peak RSS of a replica's controller", "x that", most=0.45),
    "each-proxy": Goal("replicas", "peak RSS of its proxy", "MB", most=74),
    "each-both": Goal("replicas", "peak RSS of controller and proxy", "x alone", most=0.8),
}


class Flags(Options):
    pass


def main() -> int:
    parser = make_parser("unmodified", __doc__)
    parser.add_argument("--objects", type=count, default=100_000, help="objects of all replicas together")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("unmodified", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> None:
    """Raises: BinariesMissing."""
    controller = (await asyncio.to_thread(controller_runtime, ConsoleProgress(Console(stderr=True))))[0]
    async with open_testbed(run.directory, is_real=options.is_real, objects=options.objects) as testbed:
        await run.read_versions(testbed.plane, testbed.client)
        with run.console.counting("creating the objects", options.objects) as tick:
            await testbed.stock.set({}, tick)
        alone = None
        with run.row("alone"):
            alone = await measure_alone(testbed, run, controller)
        each_mb = None
        with run.row("replicas"):
            if alone is None:
                raise NotSeen("there is nothing to compare them with")
            each_mb = await measure_replicas(testbed, run, controller, start_s=alone[0], memory_mb=alone[1])
        with run.row("labelled"):
            if each_mb is None:
                raise NotSeen("there is nothing to compare it with")
            _, labelled_mb = await start_alone(testbed, controller)
            run.figure("labelled-memory", labelled_mb)
            run.figure("each-labelled", each_mb / labelled_mb)


async def measure_alone(testbed: Testbed, run: Run, controller: Candidate) -> tuple[float, float]:
    """Seconds of a start and peak memory in MB; the second of two starts. Raises: NotSeen, Ended."""
    await start_alone(testbed, controller)
    start_s, memory_mb = await start_alone(testbed, controller)  # the API server has the objects in its cache
    run.figure("alone-start", start_s)
    run.figure("alone-memory", memory_mb)
    return start_s, memory_mb


async def start_alone(testbed: Testbed, controller: Candidate) -> tuple[float, float]:
    """Seconds until it has reconciled all objects, and its peak memory in MB. Raises: NotSeen, Ended."""
    if controller.why_not:
        raise NotSeen(controller.why_not)
    async with measured(testbed, "alone", controller.command) as program:
        loaded = await program.wait_for(Loaded)
        return loaded.at - program.started_at, program.peak_mb()


@dataclass(slots=True)
class Replica:
    """One proxy and its controller, which reports into *report*."""

    running: Running
    report: Path

    @property
    def controller(self) -> int:
        """Process id of the controller. Raises: NotSeen while there is none."""
        for pid in family(self.running.pid):
            if pid != self.running.pid and Path(f"/proc/{pid}/comm").read_text().strip() in GO_PROGRAM:
                return pid
        raise NotSeen(f"{self.running.log.stem} has no controller")

    async def wait_loaded(self) -> Loaded:
        """Its next record. Raises: NotSeen, Ended."""
        records, until = Records(self.report), time.monotonic() + START_WITHIN_S
        while not (found := records.of(Loaded)):
            self.running.check()
            if time.monotonic() > until:
                raise NotSeen(f"{self.running.log.stem} reported nothing within {START_WITHIN_S:g} s")
            await asyncio.sleep(0.05)
        return found[0]

    async def restart(self) -> float:
        """Kill the controller; seconds until the next one has reconciled every object."""
        self.report.unlink()
        began_at = time.monotonic()
        os.kill(self.controller, signal.SIGKILL)
        return (await self.wait_loaded()).at - began_at


async def measure_replicas(
    testbed: Testbed, run: Run, controller: Candidate, *, start_s: float, memory_mb: float
) -> float:
    """Median peak memory of the controllers, in MB."""
    members = owners_of(testbed, testbed.stock.names)
    async with open_replicas(testbed, controller, Counter(members.values())) as replicas:
        shards = await shards_of(testbed)
        owners = {name: shards[member] for name, member in members.items()}
        with run.console.counting("giving the objects to the replicas", len(owners)) as tick:
            await give(testbed, owners, tick)
        for replica in replicas:
            await replica.wait_loaded()  # as its objects come, one by one
        restarts, controllers, proxies = [], [], []
        for replica in replicas:
            restarts.append(await replica.restart())
            controllers.append(memory_kb(replica.controller, "VmHWM") * 1024 / 1e6)
            proxies.append(memory_kb(replica.running.pid, "VmHWM") * 1024 / 1e6)
        both = [sum(pair) for pair in zip(controllers, proxies, strict=True)]
        run.figure("each-start", statistics.median(restarts) / start_s, text(restarts, "s"))
        run.figure("each-memory", statistics.median(controllers) / memory_mb, text(controllers, "MB"))
        run.figure("each-proxy", statistics.median(proxies), text(proxies, "MB"))
        run.figure("each-both", statistics.median(both) / memory_mb, text(both, "MB"))
        run.detail("replicas", restarts_s=restarts, controllers_mb=controllers, proxies_mb=proxies)
        return statistics.median(controllers)


async def give(testbed: Testbed, owners: Mapping[str, str], tick: Tick) -> None:
    """Let each object have its owner, and be visible to its controller: as sharder and proxy leave it."""

    async def write(name: str) -> None:
        labels = dict.fromkeys((testbed.keys.shard, testbed.keys.visible), owners[name])
        await testbed.stock.collection.patch(name, MergePatch({"metadata": {"labels": labels}}))
        tick(1)

    await spread(write, list(owners), at_once=AT_ONCE)


def text(values: Sequence[float], unit: str) -> str:
    return f"{', '.join(f'{value:.1f}' for value in values)} {unit}"


def owners_of(testbed: Testbed, names: Sequence[str]) -> Mapping[str, str]:
    """The member of each object on a ring of all members."""
    ring = HashRing(list(MEMBERS))
    keys = [object_key(testbed.resource.group, testbed.namespace, name) for name in names]
    return dict(zip(names, ring.owners(keys), strict=True))


async def shards_of(testbed: Testbed) -> dict[str, str]:
    """The shard of each member, once all have one."""
    leases, found = Leases(testbed.client, LEASES_IN), dict[str, str]()
    async with asyncio.timeout(60):
        while len(found) < len(MEMBERS):
            for lease in (await leases.list())[0]:
                member = lease.metadata.annotations.get(testbed.keys.member, "")
                if member in MEMBERS:
                    found[member] = lease.metadata.name
            await asyncio.sleep(0.2)
    return found


@asynccontextmanager
async def open_replicas(
    testbed: Testbed, controller: Candidate, counts: Mapping[str, int]
) -> AsyncIterator[list[Replica]]:
    """Three proxies, each with a controller that reports when it has reconciled its share of *counts*."""
    async with AsyncExitStack() as stack:
        replicas = []
        for member in MEMBERS:
            replica = await start_replica(testbed, controller, member, objects=counts[member])
            stack.push_async_callback(replica.running.terminate)
            replicas.append(replica)
        await wait_for(lambda: all(is_at_work(each) for each in replicas), "controllers", within_s=120)
        yield replicas


async def start_replica(testbed: Testbed, controller: Candidate, member: str, *, objects: int) -> Replica:
    report = testbed.directory / f"{member}.report"
    kubeconfig = Path("{kubeconfig}")  # the proxy fills it in
    order = Order(kubeconfig=kubeconfig, namespace=testbed.namespace, objects=objects, report=report)
    command = [
        *(sys.executable, "-P", "-m", "proxy", "--ring", RING, "--member", member, "--fence", "none"),
        *("--kubeconfig", str(testbed.replica.kubeconfig), "--", *controller.command(order)),
    ]
    running = await start(lambda _: command, testbed.directory, name=member, clock=testbed.clock)
    return Replica(running, report)


def is_at_work(replica: Replica) -> bool:
    try:
        return replica.controller > 0
    except NotSeen:
        return False


if __name__ == "__main__":
    sys.exit(main())
