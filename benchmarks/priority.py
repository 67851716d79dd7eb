"""`python -m benchmarks.priority`: what the chart's priority levels do for other clients, and what they cost.

A real kube-apiserver with few seats. A stranger creates ConfigMaps, a replica's account renews a Lease, the sharder
labels objects: all by ServiceAccount tokens, which the server queues. Each turn, without and with the levels, measures
one first assignment alone (its rate) and one beside the stranger (how long the stranger and the renewals wait).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from benchmarks.measuring.planes import make_account
from benchmarks.measuring.policies import SHARDER, rendered
from benchmarks.measuring.probe import CONFIGMAPS, Answer, send_steadily
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Asked, Run, amount, count, make_parser, run_benchmark
from benchmarks.measuring.sharders import Stretch, assign_all, set_owners, sharding
from benchmarks.measuring.sightings import wait_for
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, OBJECTS_IN, RING, Testbed, open_testbed
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.client import Client
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from loadtest.quantiles import percentile

FLOWCONTROL: Final = "flowcontrol.apiserver.k8s.io"
RESOURCES: Final = {
    kind: ApiResource(FLOWCONTROL, "v1", plural, kind, namespaced=False)
    for kind, plural in (
        ("PriorityLevelConfiguration", "prioritylevelconfigurations"),
        ("FlowSchema", "flowschemas"),
    )
}
RENEWED: Final = 50
"""Leases that are renewed in turns: a second renewal of one that is under way would wait for the first."""
IDLE_S: Final = 10.0
SETTLE_S: Final = 12.0
"""Until the server uses new levels: seats that are lent and borrowed are reckoned anew every 10 s."""
WITHOUT, LEVELS = "without", "levels"
GOALS: Final = {
    **{
        f"{setting}-{line}": Goal(setting, f"{setting}: {what}", unit, most=most)
        for setting, goal in ((WITHOUT, None), (LEVELS, 1.5))
        for line, what, unit, most in (
            ("alone", "assigned per second, alone", "1/s", None),
            ("beside", "the same beside the stranger", "1/s", None),
            ("stranger", "stranger's p99, of idle", "x", goal),
            ("renewals", "renewals' p99", "ms", None),
            ("harm", "requests rejected or failed, Leases lost", "times", 0.0),
        )
    }
}

_DISPATCHED: Final = "apiserver_flowcontrol_dispatched_requests_total"
_REJECTED: Final = "apiserver_flowcontrol_rejected_requests_total"

Documents = Sequence[Mapping[str, Any]]


class Flags(Asked):
    rounds: int
    rate: float
    seats: int
    watchers: int


@dataclass
class Waits:
    """Waits of another client, in milliseconds, and its failures."""

    took_ms: list[float] = field(default_factory=list)
    failed: int = 0

    async def run(self, send: Callable[[int], Awaitable[object]], *, per_s: float) -> None:
        """Until cancelled."""

        async def one(number: int) -> str:
            try:
                await send(number)
            except KubeError:
                self.failed += 1
            return ""

        def note(answer: Answer) -> None:
            self.took_ms.append(1000 * answer.took_s)

        await send_steadily(one, per_s=per_s, note=note)

    def p(self, share: float) -> float:
        return percentile(self.took_ms, share)


@dataclass
class Turn:
    """One first assignment alone and one beside the stranger, under one setting."""

    name: str
    alone: Stretch
    beside: Stretch
    stranger: Waits
    renewals: Waits
    lost_leases: int
    dispatched: Counter[str]
    """Requests that the server let through, by priority level."""
    rejected: int
    """Requests that the server answered with 429."""


@dataclass
class Bench:
    """The control plane, and the clients beside the sharder."""

    testbed: Testbed
    run: Run
    stranger: Client
    replica: Client
    rate: float
    _numbers: int = 0

    async def create(self, _: int) -> object:
        self._numbers += 1
        body = {"metadata": {"name": f"stranger-{self._numbers}"}, "data": {"text": "x" * 500}}
        return await self.stranger.create(CONFIGMAPS, body, namespace=OBJECTS_IN, type=bytes)

    async def renew(self, number: int) -> object:
        patch = MergePatch({"spec": {"renewTime": micro_time(SystemClock().wall())}})
        name = f"renewed-{number % RENEWED}"
        return await self.replica.patch(LEASES, name, patch, namespace=OBJECTS_IN, type=bytes)

    @asynccontextmanager
    async def strangers(self) -> AsyncIterator[tuple[Waits, Waits]]:
        """The stranger and the renewals, while the block runs."""
        probes = Waits(), Waits()
        tasks = [
            asyncio.create_task(probes[0].run(self.create, per_s=self.rate), name="stranger"),
            asyncio.create_task(probes[1].run(self.renew, per_s=10), name="renewals"),
        ]
        try:
            yield probes
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> Waits:
        async with self.strangers() as (stranger, _):
            await asyncio.sleep(IDLE_S)
        return stranger

    async def turn(self, name: str, documents: Documents) -> Turn:
        """Measure under the levels of *documents*, which are deleted afterwards."""
        for document in documents:
            await self.testbed.client.create(RESOURCES[document["kind"]], document, type=bytes)
        await asyncio.sleep(SETTLE_S)
        self.testbed.leases.start_over()
        before = await self._counted(_DISPATCHED), await self._counted(_REJECTED)
        alone = await self._assign()
        async with self.strangers() as (stranger, renewals):
            beside = await self._assign()
        shards = self.testbed.stand_ins.shards.values()
        lost = sum(self.testbed.leases.taken_at(shard) is not None for shard in shards)
        dispatched = await self._counted(_DISPATCHED) - before[0]
        rejected = await self._counted(_REJECTED) - before[1]
        for document in documents:
            name_of = document["metadata"]["name"]
            await self.testbed.client.delete(RESOURCES[document["kind"]], name_of)
        return Turn(name, alone, beside, stranger, renewals, lost, dispatched, rejected.total())

    async def _counted(self, metric: str) -> Counter[str]:
        """A counter of the API server, by priority level."""
        text = (await self.testbed.client.request("GET", "/metrics")).body.decode()
        found: Counter[str] = Counter()
        for line in text.splitlines():
            if line.startswith(f"{metric}{{"):
                found[line.split('priority_level="')[1].split('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
        return found

    async def _assign(self) -> Stretch:
        await set_owners(self.testbed, self.run, {})
        async with sharding(self.testbed, row="priority") as sharder:
            return await assign_all(self.testbed, self.run, sharder)


def levels(**priority: int) -> Documents:
    """The chart's levels and flow schemas for the accounts of this benchmark."""
    resources = [{"group": "example.com", "resource": "websites"}]
    values = {
        "rings": [{"name": RING, "spec": {"leaseNamespace": LEASES_IN, "resources": resources}}],
        "sharder": SHARDER,
        "priority": {"extraServiceAccounts": [{"namespace": LEASES_IN, "name": "replica"}], **priority},
    }
    return rendered(values, namespace=LEASES_IN, templates=["priority"])


async def measure(asked: Flags, run: Run, settings: Mapping[str, Documents]) -> list[Turn]:
    """The turns of all *settings*; figures of those that are known. Raises: BinariesMissing."""
    flags = [
        f"--max-requests-inflight={asked.seats - asked.seats // 3}",
        f"--max-mutating-requests-inflight={asked.seats // 3}",
    ]
    async with AsyncExitStack() as stack:
        testbed = await stack.enter_async_context(
            open_testbed(run.directory, is_real=asked.is_real, objects=asked.objects, apiserver_flags=flags)
        )
        await run.read_versions(testbed.plane, testbed.client)
        account = await make_account(testbed.plane, testbed.client, "stranger", namespace=LEASES_IN)
        stranger, replica = [
            await stack.enter_async_context(Client(load_cluster(kubeconfig=str(path)), max_connections=64))
            for path in (account.kubeconfig, testbed.replica.kubeconfig)
        ]
        for number in range(RENEWED):
            lease = {"metadata": {"name": f"renewed-{number}"}, "spec": {"holderIdentity": "replica"}}
            await testbed.client.create(LEASES, lease, namespace=OBJECTS_IN, type=bytes)
        await testbed.stand_ins.join(MEMBERS)
        await stack.enter_async_context(watching(testbed, asked.watchers))
        bench = Bench(testbed, run, stranger, replica, asked.rate)
        await set_owners(testbed, run, {})
        await bench.idle()  # warms connections and caches up
        idle = await bench.idle()
        run.console.say(f"idle: stranger p50 {idle.p(0.5):.1f} p99 {idle.p(0.99):.1f} ms")
        turns: list[Turn] = []
        for number in range(asked.rounds):
            for name in list(settings) if number % 2 == 0 else list(settings)[::-1]:
                with run.row(name):
                    turns.append(await bench.turn(name, settings[name]))
                    note_turns(run, name, [turn for turn in turns if turn.name == name], idle)
        return turns


def note_turns(run: Run, name: str, turns: Sequence[Turn], idle: Waits) -> None:
    """Medians of the turns so far."""

    def middle(figure: Callable[[Turn], float]) -> float:
        return statistics.median(figure(turn) for turn in turns)

    p50, p99 = middle(lambda turn: turn.stranger.p(0.5)), middle(lambda turn: turn.stranger.p(0.99))
    run.figure(f"{name}-alone", middle(lambda turn: turn.alone.per_s_while_writing))
    run.figure(f"{name}-beside", middle(lambda turn: turn.beside.per_s_while_writing))
    how = f"p50 {p50:.1f}, p99 {p99:.1f} ms; idle {idle.p(0.5):.1f}, {idle.p(0.99):.1f} ms"
    run.figure(f"{name}-stranger", p99 / idle.p(0.99), how)
    run.figure(f"{name}-renewals", middle(lambda turn: turn.renewals.p(0.99)))
    rejected, lost = sum(turn.rejected for turn in turns), sum(turn.lost_leases for turn in turns)
    failed = sum(turn.stranger.failed + turn.renewals.failed for turn in turns)
    run.figure(f"{name}-harm", rejected + failed + lost, f"429: {rejected}, failed: {failed}, lost: {lost}")
    run.detail(name, dispatched=[dict(turn.dispatched) for turn in turns])


@asynccontextmanager
async def watching(testbed: Testbed, number: int) -> AsyncIterator[None]:
    """So many watches of the objects, of shards that own none: the server reckons each write by its watchers."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(testbed.cluster, max_connections=number + 1))
        sessions = [
            Reflector(
                ListerWatcher(
                    client,
                    testbed.resource,
                    label_selector=f"{testbed.keys.shard}=watcher-{index}",
                    metadata_only=True,
                ),
                streams_lists=False,
                clock=testbed.clock,
                rng=random.Random(index),  # noqa: S311 - jitter
            )
            for index in range(number)
        ]
        tasks = [asyncio.create_task(_follow(session), name="watcher") for session in sessions]
        try:
            await wait_for(
                lambda: all(session.watching_since is not None for session in sessions),
                "the watches to begin",
                within_s=60,
            )
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(session: Reflector) -> None:
    async for _ in session.events():
        pass


def flags_parser() -> argparse.ArgumentParser:
    parser = make_parser("priority", __doc__)
    add = parser.add_argument
    add("--objects", type=count, default=20_000, help="objects to assign")
    add("--rounds", type=count, default=2, help="turns of each setting")
    add("--rate", type=amount, default=50, help="ConfigMaps per second")
    add("--seats", type=count, default=60, help="requests that the server runs at once")
    add("--watchers", type=int, default=0, help="watches of the objects, as many as replicas would be")
    return parser


def main() -> int:
    asked = flags_parser().parse_args(namespace=Flags())
    return run_benchmark("priority", GOALS, asked, partial(measure_both, asked))


async def measure_both(asked: Flags, run: Run) -> None:
    await measure(asked, run, {WITHOUT: [], LEVELS: levels()})


if __name__ == "__main__":
    sys.exit(main())
