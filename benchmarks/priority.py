"""What the chart's priority levels do for other clients, and what they cost: first assignments without and with them.

`python -m benchmarks.priority [--objects N] [--rounds N] [--rate N] [--seats N] [--watchers N]`. A real
kube-apiserver with few seats. A stranger creates ConfigMaps, a replica's account renews a Lease, the sharder labels
objects: all by ServiceAccount tokens, which the server queues. Each turn measures one assignment alone (its rate) and
one beside the stranger (how long the stranger and the renewals wait).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.measuring.chart import SHARDER, rendered
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.planes import make_account
from benchmarks.measuring.sightings import wait_for
from benchmarks.sharder.fleet import sharding
from benchmarks.sharder.ground import LEASES_IN, MEMBERS, OBJECTS_IN, RING, Ground, open_ground
from benchmarks.sharder.rows import Peaks
from benchmarks.sharder.throughput import Stretch, assign_all, set_owners
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.client import Client
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.watch import ListWatch
from loadtest.quantiles import percentile

FLOWCONTROL: Final = "flowcontrol.apiserver.k8s.io"
RESOURCES: Final = {
    kind: ApiResource(FLOWCONTROL, "v1", plural, kind, namespaced=False)
    for kind, plural in (
        ("PriorityLevelConfiguration", "prioritylevelconfigurations"),
        ("FlowSchema", "flowschemas"),
    )
}
CONFIGMAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
RENEWED: Final = 50
"""Leases that are renewed in turns: a second renewal of one that is under way would wait for the first."""
IDLE_S: Final = 10.0
SETTLE_S: Final = 12.0
"""Until the server uses new levels: seats that are lent and borrowed are reckoned anew every 10 s."""

_DISPATCHED: Final = "apiserver_flowcontrol_dispatched_requests_total"
_REJECTED: Final = "apiserver_flowcontrol_rejected_requests_total"

Documents = Sequence[Mapping[str, Any]]


@dataclass
class Probe:
    """Requests at a fixed rate, whatever the answers take; what each took, in milliseconds."""

    took_ms: list[float] = field(default_factory=list)
    failed: int = 0

    async def run(self, send: Callable[[int], Awaitable[object]], *, per_s: float) -> None:
        """Until cancelled."""
        began, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while True:
                number += 1
                await asyncio.sleep(max(0.0, began + number / per_s - time.monotonic()))
                tasks.create_task(self._one(send, number), name=f"request {number}")

    async def _one(self, send: Callable[[int], Awaitable[object]], number: int) -> None:
        sent_at = time.monotonic()
        try:
            await send(number)
        except KubeError:
            self.failed += 1
        self.took_ms.append(1000 * (time.monotonic() - sent_at))

    def p(self, share: float) -> float:
        return percentile(self.took_ms, share)


@dataclass
class Turn:
    """One first assignment alone and one beside the stranger, under one setting."""

    name: str
    alone: Stretch
    beside: Stretch
    stranger: Probe
    renewals: Probe
    lost_leases: int
    dispatched: Counter[str]
    """Requests that the server let through, by priority level."""
    rejected: int
    """Requests that the server answered with 429."""


@dataclass
class Bench:
    """The control plane, and who acts on it besides the sharder."""

    ground: Ground
    meter: Meter
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
    async def strangers(self) -> AsyncIterator[tuple[Probe, Probe]]:
        """The stranger and the renewals, while the block runs."""
        probes = Probe(), Probe()
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

    async def idle(self) -> Probe:
        async with self.strangers() as (stranger, _):
            await asyncio.sleep(IDLE_S)
        return stranger

    async def turn(self, name: str, documents: Documents) -> Turn:
        """Measure under the levels of *documents*, which go afterwards."""
        for document in documents:
            await self.ground.client.create(RESOURCES[document["kind"]], document, type=bytes)
        await asyncio.sleep(SETTLE_S)
        self.ground.leases.start_over()
        before = await self._counted(_DISPATCHED), await self._counted(_REJECTED)
        alone = await self._assign()
        async with self.strangers() as (stranger, renewals):
            beside = await self._assign()
        shards = self.ground.stand_ins.shards.values()
        lost = sum(self.ground.leases.taken_at(shard) is not None for shard in shards)
        dispatched = await self._counted(_DISPATCHED) - before[0]
        rejected = await self._counted(_REJECTED) - before[1]
        for document in documents:
            name_of = document["metadata"]["name"]
            await self.ground.client.delete(RESOURCES[document["kind"]], name_of)
        return Turn(name, alone, beside, stranger, renewals, lost, dispatched, rejected.total())

    async def _counted(self, metric: str) -> Counter[str]:
        """A counter of the API server, by priority level."""
        text = (await self.ground.client.request("GET", "/metrics")).body.decode()
        found: Counter[str] = Counter()
        for line in text.splitlines():
            if line.startswith(f"{metric}{{"):
                found[line.split('priority_level="')[1].split('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
        return found

    async def _assign(self) -> Stretch:
        await set_owners(self.ground, self.meter, {})
        async with sharding(self.ground, Peaks(), row="priority") as sharder:
            return await assign_all(self.ground, self.meter, sharder)


def levels(**priority: int) -> Documents:
    """The chart's levels and flow schemas for the accounts of this benchmark."""
    resources = [{"group": "example.com", "resource": "websites"}]
    values = {
        "rings": [{"name": RING, "spec": {"leaseNamespace": LEASES_IN, "resources": resources}}],
        "sharder": SHARDER,
        "priority": {"extraServiceAccounts": [{"namespace": LEASES_IN, "name": "replica"}], **priority},
    }
    return rendered(values, namespace=LEASES_IN, templates=["priority"])


async def measure(
    settings: Mapping[str, Documents],
    *,
    objects: int,
    rounds: int,
    rate: float = 50,
    seats: int = 60,
    watchers: int = 0,
) -> tuple[Probe, list[Turn]]:
    """What the stranger waits for on an idle server, and the turns. *watchers*: as many as replicas would be.

    Raises: BinariesMissing.
    """
    flags = [
        f"--max-requests-inflight={seats - seats // 3}",
        f"--max-mutating-requests-inflight={seats // 3}",
    ]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        meter = stack.enter_context(Meter(Console(stderr=True)))
        ground = await stack.enter_async_context(
            open_ground(directory, is_real=True, objects=objects, lease_s=15, apiserver_flags=flags)
        )
        account = await make_account(ground.plane, ground.client, "stranger", namespace=LEASES_IN)
        stranger, replica = [
            await stack.enter_async_context(Client(load_cluster(kubeconfig=str(path)), max_connections=64))
            for path in (account.kubeconfig, ground.replica.kubeconfig)
        ]
        for number in range(RENEWED):
            lease = {"metadata": {"name": f"renewed-{number}"}, "spec": {"holderIdentity": "replica"}}
            await ground.client.create(LEASES, lease, namespace=OBJECTS_IN, type=bytes)
        await ground.stand_ins.join(MEMBERS)
        await stack.enter_async_context(watching(ground, watchers))
        bench = Bench(ground, meter, stranger, replica, rate)
        await set_owners(ground, meter, {})
        await bench.idle()  # warms connections and caches up
        idle = await bench.idle()
        meter.say(f"idle: stranger p50 {idle.p(0.5):.1f} p99 {idle.p(0.99):.1f} ms")
        turns = []
        for number in range(rounds):
            order = list(settings) if number % 2 == 0 else list(settings)[::-1]
            for name in order:
                turns.append(await bench.turn(name, settings[name]))
                meter.say(_line(name, [turns[-1]], idle))
        return idle, turns


@asynccontextmanager
async def watching(ground: Ground, number: int) -> AsyncIterator[None]:
    """So many watches of the objects, of shards that own none: the server reckons each write by its watchers."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(ground.cluster, max_connections=number + 1))
        sessions = [
            ListWatch(
                ListerWatcher(
                    client,
                    ground.resource,
                    label_selector=f"{ground.keys.shard}=watcher-{index}",
                    metadata_only=True,
                ),
                streams_lists=False,
                clock=ground.clock,
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


async def _follow(session: ListWatch) -> None:
    async for _ in session.events():
        pass


def _line(name: str, turns: Sequence[Turn], idle: Probe) -> str:
    def middle(figure: Callable[[Turn], float]) -> float:
        return statistics.median(figure(turn) for turn in turns)

    p99 = middle(lambda turn: turn.stranger.p(0.99))
    return (
        f"{name:10}{middle(lambda turn: turn.alone.per_s_while_writing):9.0f}"
        f"{middle(lambda turn: turn.beside.per_s_while_writing):9.0f}"
        f"{middle(lambda turn: turn.stranger.p(0.5)):9.1f}{p99:9.1f}{p99 / idle.p(0.99):9.2f}"
        f"{middle(lambda turn: turn.renewals.p(0.99)):9.1f}"
        f"{sum(turn.rejected for turn in turns):5}"
        f"{sum(turn.stranger.failed + turn.renewals.failed for turn in turns):5}"
        f"{sum(turn.lost_leases for turn in turns):5}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.priority", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="objects to assign (default 20000)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each setting (default 2)")
    parser.add_argument("--rate", type=float, default=50, help="ConfigMaps per second (default 50)")
    parser.add_argument(
        "--seats", type=int, default=60, help="requests that the server runs at once (default 60)"
    )
    parser.add_argument("--watchers", type=int, default=0, help="watches of the objects (default 0)")
    asked = parser.parse_args()
    settings: dict[str, Documents] = {"without": [], "levels": levels()}
    idle, turns = asyncio.run(
        measure(
            settings,
            objects=asked.objects,
            rounds=asked.rounds,
            rate=asked.rate,
            seats=asked.seats,
            watchers=asked.watchers,
        )
    )
    print(f"stranger on the idle server: p50 {idle.p(0.5):.1f} ms, p99 {idle.p(0.99):.1f} ms")
    heads = ("alone/s", "beside/s", "p50 ms", "p99 ms", "of idle", "renew99")
    print(f"{'':10}" + "".join(f"{head:>9}" for head in heads) + f"{'429':>5}{'err':>5}{'lost':>5}")
    for name in settings:
        print(_line(name, [turn for turn in turns if turn.name == name], idle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
