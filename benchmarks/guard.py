"""What the chart's admission policies cost: the API server's CPU time of a write, without and with them, in turns.

`python -m benchmarks.guard [--rounds N] [--requests N] [--strict]`. A real kube-apiserver and etcd; three kinds of
write: the sharder's label patch, a replica's renewal of its Lease under a token of its pod, an edit by somebody else.
CPU time rather than rate: what else runs on the machine changes it little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from benchmarks.measuring.guard import install_guard, order_of_turns, switch_guard
from benchmarks.measuring.planes import make_account
from devcluster.real import RealPlane, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import ring_crd, website_crd

WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
PODS: Final = ApiResource("", "v1", "pods", "Pod")
NAMESPACE: Final = "bench"
KEYS: Final = RingKeys("websites")
RING: Final = {
    "name": KEYS.ring,
    "spec": {
        "leaseNamespace": NAMESPACE,
        "resources": [{"group": "example.com", "resource": "websites"}],
    },
}
OBJECTS: Final = 64
AT_ONCE: Final = 8
SETTLE_S: Final = 2.0
"""Until a resource that came is served."""
GOAL_PERCENT: Final = 2.0

Send = Callable[[int], Awaitable[object]]


@dataclass
class Kind:
    """One kind of write, and what it cost in each round, in milliseconds of the server's CPU time."""

    name: str
    send: Send
    without: list[float] = field(default_factory=list)
    guarded: list[float] = field(default_factory=list)
    rates: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})

    @property
    def lost_percent(self) -> float:
        """How much more a write costs: the median of the rounds' ratios."""
        pairs = zip(self.without, self.guarded, strict=True)
        return 100 * (statistics.median(after / before for before, after in pairs) - 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of measurements (default 6)")
    parser.add_argument(
        "--requests", type=int, default=2_000, help="writes of each kind in each (default 2000)"
    )
    parser.add_argument(
        "--strict", action="store_true", help=f"exit 1 above {GOAL_PERCENT:g} %% for a label patch"
    )
    asked = parser.parse_args()
    kinds = asyncio.run(measure(asked.rounds, asked.requests))
    print(f"{'write':24}{'ms without':>12}{'ms guarded':>12}{'more':>8}{'/s without':>12}{'/s guarded':>12}")
    for kind in kinds:
        figures = [*map(statistics.median, (kind.without, kind.guarded))]
        rates = [statistics.median(kind.rates[is_on]) for is_on in (False, True)]
        print(
            f"{kind.name:24}{figures[0]:12.3f}{figures[1]:12.3f}{kind.lost_percent:7.1f}%{rates[0]:12.0f}{rates[1]:12.0f}"
        )
    return int(asked.strict and kinds[0].lost_percent > GOAL_PERCENT)


async def measure(rounds: int, requests: int) -> list[Kind]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = await stack.enter_async_context(real_plane(directory, controller_manager=False))
        admin = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(plane.kubeconfig))))
        kinds = await prepare(plane, admin, stack)
        bindings = await install_guard(
            admin, RING, namespace=NAMESPACE, templates=("labels", "leases", "mutating")
        )
        for number in range(rounds):
            for is_on in order_of_turns(number):
                await switch_guard(admin, bindings, is_on=is_on, namespace=NAMESPACE)
                for kind in kinds:
                    await run(plane, kind, requests, is_on=is_on)
    return kinds


async def prepare(plane: RealPlane, admin: Client, stack: AsyncExitStack) -> list[Kind]:
    """Objects, a Lease, accounts as the chart has them, and the three kinds of write."""
    for path in (ring_crd(), website_crd()):
        await admin.create(CRDS, yaml.safe_load(path.read_text()), type=bytes)
    await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, type=bytes)
    await asyncio.sleep(SETTLE_S)
    for number in range(OBJECTS):
        made = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": site(number)}}
        await admin.create(WEBSITES, {**made, "spec": {"html": "x" * 1000}}, namespace=NAMESPACE, type=bytes)
    accounts = {
        name: await make_account(plane, admin, name, namespace=NAMESPACE)
        for name in ("sharder", "tenant", "web")
    }
    container = {"name": "main", "image": "x"}
    pod = {"metadata": {"name": "web-0"}, "spec": {"serviceAccountName": "web", "containers": [container]}}
    await admin.create(PODS, pod, namespace=NAMESPACE, type=bytes)
    bound = await plane.service_account_kubeconfig(NAMESPACE, "web", pod="web-0")
    sharder, tenant, replica = [
        await stack.enter_async_context(Client(load_cluster(kubeconfig=str(path)), max_connections=AT_ONCE))
        for path in (accounts["sharder"].kubeconfig, accounts["tenant"].kubeconfig, bound)
    ]
    annotations = {KEYS.member: "web-0", KEYS.protocol: "v1"}
    for number in range(OBJECTS):
        meta = {"name": life(number), "labels": {KEYS.ring_label: KEYS.ring}, "annotations": annotations}
        spec = {"holderIdentity": life(number), "leaseDurationSeconds": 15}
        await replica.create(LEASES, {"metadata": meta, "spec": spec}, namespace=NAMESPACE, type=bytes)
    clock = SystemClock()

    async def assign(number: int) -> object:
        meta = {"labels": {KEYS.shard: f"shard-{number % 7919}"}, "annotations": {KEYS.turn: str(number)}}
        patch = MergePatch({"metadata": meta})
        return await sharder.patch(
            WEBSITES, site(number), patch, namespace=NAMESPACE, type=bytes, metadata_only=True
        )

    async def edit(number: int) -> object:
        patch = MergePatch({"spec": {"html": f"{number:01000}"}})
        return await tenant.patch(WEBSITES, site(number), patch, namespace=NAMESPACE, type=bytes)

    async def renew(number: int) -> object:
        patch = MergePatch({"spec": {"renewTime": micro_time(clock.wall())}})
        return await replica.patch(LEASES, life(number), patch, namespace=NAMESPACE, type=bytes)

    return [
        Kind("label patch, sharder", assign),
        Kind("Lease renewal, replica", renew),
        Kind("edit, tenant", edit),
    ]


def site(number: int) -> str:
    return f"site-{number % OBJECTS}"


def life(number: int) -> str:
    """A life of the one pod that the replica's token is of."""
    return f"web-0-{number % OBJECTS:08x}"


async def run(plane: RealPlane, kind: Kind, requests: int, *, is_on: bool) -> None:
    numbers = iter(range(requests))

    async def worker() -> None:
        for number in numbers:
            await kind.send(number)

    began, before_s = time.monotonic(), cpu_s(plane)
    async with asyncio.TaskGroup() as tasks:
        for number in range(AT_ONCE):
            tasks.create_task(worker(), name=f"writer {number}")
    (kind.guarded if is_on else kind.without).append(1000 * (cpu_s(plane) - before_s) / requests)
    kind.rates[is_on].append(requests / (time.monotonic() - began))


def cpu_s(plane: RealPlane) -> float:
    """CPU time of the API server and etcd so far."""
    ticks = 0
    for pid in plane.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
