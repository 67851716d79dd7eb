"""`python -m benchmarks.guard`: the API server's CPU time of a write, without and with the chart's admission policies.

A real kube-apiserver and etcd; three kinds of write, alternating: the sharder's label patch, a replica's renewal of its
Lease under a token of its pod, an edit by a tenant. CPU time rather than rate: other work on the machine changes it
little.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import yaml

from benchmarks.measuring.planes import make_account, open_plane
from benchmarks.measuring.policies import install_guard, order_of_round, switch_guard
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.senders import spread
from devcluster.flag_values import count
from devcluster.real import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import InputError
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from loadtest.machine import cpu_s
from ringleader.assets import ring_crd, website_crd

WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
PODS: Final = ApiResource("", "v1", "pods", "Pod")
NAMESPACE: Final = "bench"
KEYS: Final = RingKeys("websites")
RING: Final = {
    "name": KEYS.ring,
    "spec": {"leaseNamespace": NAMESPACE, "resources": [{"group": "example.com", "resource": "websites"}]},
}
OBJECTS: Final = 64
AT_ONCE: Final = 8
SETTLE_S: Final = 2.0
"""Until a resource that came is served."""
GOALS: Final = {
    "label": Goal("guard", "label patch, sharder: more CPU of the server", "%", most=2),
    "renewal": Goal("guard", "Lease renewal, replica: the same", "%"),
    "edit": Goal("guard", "edit, tenant: the same", "%"),
}

Send = Callable[[int], Awaitable[object]]


class Flags(Options):
    rounds: int
    requests: int


@dataclass
class Write:
    """One kind of write: the server's CPU milliseconds for one, and writes per second, without and under the guard."""

    line: str
    send: Send
    cpu_ms: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    per_s: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})

    def note(self, run: Run) -> None:
        """The median of the rounds' ratios."""
        pairs = zip(self.cpu_ms[False], self.cpu_ms[True], strict=True)
        more = 100 * (statistics.median(guarded / without for without, guarded in pairs) - 1)
        cpu = [statistics.median(self.cpu_ms[is_on]) for is_on in (False, True)]
        rates = [statistics.median(self.per_s[is_on]) for is_on in (False, True)]
        how = f"{cpu[0]:.2f} ms, {cpu[1]:.2f} guarded; {rates[0]:.0f}/s, {rates[1]:.0f} guarded"
        run.figure(self.line, more, how)
        run.detail("guard", **{self.line: {"ms": self.cpu_ms[False], "ms_guarded": self.cpu_ms[True]}})


def main() -> int:
    parser = make_parser("guard", __doc__)
    parser.add_argument("--rounds", type=count, default=6, help="pairs of measurements")
    parser.add_argument("--requests", type=count, default=2_000, help="writes of each kind in each")
    parser.set_defaults(objects=OBJECTS)
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("guard", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> None:
    """Raises: InputError, BinariesMissing."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(open_plane(run.directory / "plane", is_real=options.is_real))
        if not isinstance(plane, RealPlane):
            raise InputError("--plane", options.plane, "has no admission policies", "measure on a real one")
        admin = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(plane.kubeconfig))))
        await run.read_versions(plane, admin)
        writes = await prepare(plane, admin, stack)
        bindings = await install_guard(
            admin, RING, namespace=NAMESPACE, templates=("labels", "leases", "mutating")
        )
        with run.row("guard"):
            for number in range(options.rounds):
                for is_on in order_of_round(number):
                    await switch_guard(admin, bindings, is_on=is_on, namespace=NAMESPACE)
                    for write in writes:
                        await send_all(plane, write, options.requests, is_on=is_on)
            for write in writes:
                write.note(run)


async def prepare(plane: RealPlane, admin: Client, stack: AsyncExitStack) -> list[Write]:
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
        meta = {
            "name": lease_name(number),
            "labels": {KEYS.ring_label: KEYS.ring},
            "annotations": annotations,
        }
        spec = {"holderIdentity": lease_name(number), "leaseDurationSeconds": 15}
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
        return await replica.patch(LEASES, lease_name(number), patch, namespace=NAMESPACE, type=bytes)

    return [Write("label", assign), Write("renewal", renew), Write("edit", edit)]


def site(number: int) -> str:
    return f"site-{number % OBJECTS}"


def lease_name(number: int) -> str:
    """A Lease of the one pod of the replica's token."""
    return f"web-0-{number % OBJECTS:08x}"


async def send_all(plane: RealPlane, write: Write, requests: int, *, is_on: bool) -> None:
    began_at, before_s = time.monotonic(), cpu_s(plane.pids)
    await spread(write.send, range(requests), at_once=AT_ONCE)
    write.cpu_ms[is_on].append(1000 * (cpu_s(plane.pids) - before_s) / requests)
    write.per_s[is_on].append(requests / (time.monotonic() - began_at))


if __name__ == "__main__":
    sys.exit(main())
