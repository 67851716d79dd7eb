"""`python -m benchmarks.priority`: what the chart's priority levels do for other clients, and what they cost.

A real kube-apiserver with few seats. Another client creates ConfigMaps, a replica's account renews a Lease, the sharder
labels objects: all by ServiceAccount tokens, which the server queues. Each round measures, without and with the levels,
one first assignment alone (its rate) and one beside the other client (its latencies, and those of the renewals).
"""

from __future__ import annotations

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

from benchmarks.measuring.observations import wait_for
from benchmarks.measuring.planes import make_account
from benchmarks.measuring.policies import SHARDER, rendered
from benchmarks.measuring.probe import CONFIGMAPS
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.senders import send_steadily
from benchmarks.measuring.sharders import assign_all, set_owners, sharding
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, OBJECTS_IN, RING, Testbed, open_testbed
from benchmarks.measuring.wrk import Writes
from devcluster.flag_values import amount, count
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
"""Leases that are renewed in order: a second renewal of one that is under way would wait for the first."""
IDLE_S: Final = 10.0
SETTLE_S: Final = 12.0
"""Until the server uses new levels: lent and borrowed seats are computed every 10 s."""
RENEWALS_PER_S: Final = 10
SETTINGS: Final = ("without", "levels")
GOALS: Final = {
    **{
        f"{setting}-{line}": Goal(setting, f"{setting}: {what}", unit, most=most)
        for setting, goal in zip(SETTINGS, (None, 1.5), strict=True)
        for line, what, unit, most in (
            ("alone", "assigned per second, alone", "1/s", None),
            ("beside", "the same beside the other client", "1/s", None),
            ("client", "other client's p99, of idle", "x", goal),
            ("renewals", "renewals' p99", "ms", None),
            ("harm", "requests rejected or failed, Leases lost", "times", 0.0),
        )
    }
}

_DISPATCHED: Final = "apiserver_flowcontrol_dispatched_requests_total"
_REJECTED: Final = "apiserver_flowcontrol_rejected_requests_total"

Documents = Sequence[Mapping[str, Any]]


class Flags(Options):
    rounds: int
    rate: float
    seats: int
    watchers: int


@dataclass
class Latencies:
    """Milliseconds of another client's requests, and its failures."""

    took_ms: list[float] = field(default_factory=list)
    failed: int = 0

    async def measure(self, send: Callable[[int], Awaitable[object]], number: int) -> None:
        began_at = SystemClock().now()
        try:
            await send(number)
        except KubeError:
            self.failed += 1
        self.took_ms.append(1000 * (SystemClock().now() - began_at))

    def p(self, share: float) -> float:
        return percentile(self.took_ms, share)


@dataclass
class Sample:
    """One first assignment alone and one beside the other client, under one setting."""

    alone: Writes
    beside: Writes
    client: Latencies
    renewals: Latencies
    lost_leases: int
    dispatched: Counter[str]
    """Requests that the server let through, by priority level."""
    rejected: int
    """Requests that the server answered with 429."""


@dataclass
class Clients:
    """The clients beside the sharder."""

    testbed: Testbed
    other: Client
    replica: Client
    rate: float
    _created: int = 0

    async def create(self, _: int) -> object:
        self._created += 1
        body = {"metadata": {"name": f"other-{self._created}"}, "data": {"text": "x" * 500}}
        return await self.other.create(CONFIGMAPS, body, namespace=OBJECTS_IN, type=bytes)

    async def renew(self, number: int) -> object:
        patch = MergePatch({"spec": {"renewTime": micro_time(SystemClock().wall())}})
        name = f"renewed-{number % RENEWED}"
        return await self.replica.patch(LEASES, name, patch, namespace=OBJECTS_IN, type=bytes)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[tuple[Latencies, Latencies]]:
        """The other client and the renewals, while the block runs."""
        found = Latencies(), Latencies()
        loads = ((found[0], self.create, self.rate), (found[1], self.renew, RENEWALS_PER_S))
        tasks = [
            asyncio.create_task(send_steadily(partial(one.measure, send), per_s=per_s), name="client")
            for one, send, per_s in loads
        ]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> Latencies:
        async with self.sending() as (client, _):
            await asyncio.sleep(IDLE_S)
        return client


def main() -> int:
    parser = make_parser("priority", __doc__)
    add = parser.add_argument
    add("--objects", type=count, default=20_000, help="objects to assign")
    add("--rounds", type=count, default=2, help="samples of each setting")
    add("--rate", type=amount, default=50, help="ConfigMaps per second")
    add("--seats", type=count, default=60, help="requests that the server runs at once")
    add("--watchers", type=int, default=0, help="watches of the objects, as many as replicas would be")
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("priority", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> dict[str, list[Sample]]:
    """The samples of each setting. Raises: BinariesMissing."""
    flags = [
        f"--max-requests-inflight={options.seats - options.seats // 3}",
        f"--max-mutating-requests-inflight={options.seats // 3}",
    ]
    async with AsyncExitStack() as stack:
        testbed = await stack.enter_async_context(
            open_testbed(
                run.directory, is_real=options.is_real, objects=options.objects, apiserver_flags=flags
            )
        )
        await run.read_versions(testbed.plane, testbed.client)
        account = await make_account(testbed.plane, testbed.client, "other", namespace=LEASES_IN)
        other, replica = [
            await stack.enter_async_context(Client(load_cluster(kubeconfig=str(path)), max_connections=64))
            for path in (account.kubeconfig, testbed.replica.kubeconfig)
        ]
        for number in range(RENEWED):
            lease = {"metadata": {"name": f"renewed-{number}"}, "spec": {"holderIdentity": "replica"}}
            await testbed.client.create(LEASES, lease, namespace=OBJECTS_IN, type=bytes)
        await testbed.stand_ins.join(MEMBERS)
        await stack.enter_async_context(watching(testbed, options.watchers))
        clients = Clients(testbed, other, replica, options.rate)
        await set_owners(testbed, run, {})
        await clients.idle()  # warms connections and caches up
        idle = await clients.idle()
        run.console.say(f"idle: p50 {idle.p(0.5):.1f} p99 {idle.p(0.99):.1f} ms")
        documents: dict[str, Documents] = dict(zip(SETTINGS, ([], levels()), strict=True))
        samples: dict[str, list[Sample]] = {name: [] for name in SETTINGS}
        for number in range(options.rounds):
            for name in SETTINGS if number % 2 == 0 else SETTINGS[::-1]:
                with run.row(name):
                    samples[name].append(await take_sample(clients, run, documents[name]))
                    note_samples(run, name, samples[name], idle)
        return samples


def levels() -> Documents:
    """The chart's levels and flow schemas for the accounts of this benchmark."""
    resources = [{"group": "example.com", "resource": "websites"}]
    values = {
        "rings": {RING: {"leaseNamespace": LEASES_IN, "resources": resources}},
        "sharder": SHARDER,
        "priority": {"extraServiceAccounts": [{"namespace": LEASES_IN, "name": "replica"}]},
    }
    return rendered(values, namespace=LEASES_IN, templates=["priority"])


async def take_sample(clients: Clients, run: Run, documents: Documents) -> Sample:
    """Measure under the levels of *documents*, which are deleted afterwards."""
    testbed = clients.testbed
    for document in documents:
        await testbed.client.create(RESOURCES[document["kind"]], document, type=bytes)
    await asyncio.sleep(SETTLE_S)
    testbed.leases.start_over()
    dispatched, rejected = await counted(testbed, _DISPATCHED), await counted(testbed, _REJECTED)
    alone = await assign(testbed, run)
    async with clients.sending() as (client, renewals):
        beside = await assign(testbed, run)
    lost = sum(testbed.leases.taken_at(shard) is not None for shard in testbed.stand_ins.shards.values())
    dispatched = await counted(testbed, _DISPATCHED) - dispatched
    rejected = await counted(testbed, _REJECTED) - rejected
    for document in documents:
        await testbed.client.delete(RESOURCES[document["kind"]], document["metadata"]["name"])
    return Sample(alone, beside, client, renewals, lost, dispatched, rejected.total())


async def assign(testbed: Testbed, run: Run) -> Writes:
    await set_owners(testbed, run, {})
    async with sharding(testbed, row="priority") as sharder:
        return await assign_all(testbed, run, sharder)


async def counted(testbed: Testbed, metric: str) -> Counter[str]:
    """A counter of the API server, by priority level."""
    text = (await testbed.client.request("GET", "/metrics")).body.decode()
    found: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith(f"{metric}{{"):
            found[line.split('priority_level="')[1].split('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
    return found


def note_samples(run: Run, name: str, samples: Sequence[Sample], idle: Latencies) -> None:
    """Medians of the samples so far."""

    def middle(figure: Callable[[Sample], float]) -> float:
        return statistics.median(figure(sample) for sample in samples)

    p50, p99 = middle(lambda sample: sample.client.p(0.5)), middle(lambda sample: sample.client.p(0.99))
    run.figure(f"{name}-alone", middle(lambda sample: sample.alone.per_s_while_writing))
    run.figure(f"{name}-beside", middle(lambda sample: sample.beside.per_s_while_writing))
    how = f"p50 {p50:.1f}, p99 {p99:.1f} ms; idle {idle.p(0.5):.1f}, {idle.p(0.99):.1f} ms"
    run.figure(f"{name}-client", p99 / idle.p(0.99), how)
    run.figure(f"{name}-renewals", middle(lambda sample: sample.renewals.p(0.99)))
    rejected, lost = sum(sample.rejected for sample in samples), sum(each.lost_leases for each in samples)
    failed = sum(sample.client.failed + sample.renewals.failed for sample in samples)
    run.figure(f"{name}-harm", rejected + failed + lost, f"429: {rejected}, failed: {failed}, lost: {lost}")
    run.detail(name, dispatched=[dict(sample.dispatched) for sample in samples])


@asynccontextmanager
async def watching(testbed: Testbed, number: int) -> AsyncIterator[None]:
    """*number* watches of the objects, of shards that own none: the server charges a write for its watchers."""
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


if __name__ == "__main__":
    sys.exit(main())
