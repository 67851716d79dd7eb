"""Runs of a controller on a control plane in memory, for tests that play sharder and controllers."""

from __future__ import annotations

import asyncio
import random
import secrets
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from devcluster.embedded import EmbeddedPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import HasMeta, Lease, LeaseSpec, Meta, OwnerReference
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.shard.lease_validity import LeaseValidity
from proxy.existence import Existence
from proxy.gate import Gate
from proxy.handover import Handover
from proxy.informers import TreeInformers
from proxy.kinds import TreeKind
from proxy.object_writer import ObjectWriter
from proxy.restart import Cause, Pace
from proxy.runs import Runs
from proxy.trees import Trees

KEYS = RingKeys("pairs")
SHARD, BEFORE, OTHER = "web-0-00000001", "web-0-00000000", "web-1-00000001"
ROOTS = ApiResource("", "v1", "configmaps", "ConfigMap")
CHILDREN = ApiResource("", "v1", "secrets", "Secret")
BELOW_ROOTS = frozenset({(ROOTS.group, ROOTS.kind)})
KINDS = (TreeKind(ROOTS, is_main=True), TreeKind(CHILDREN, above=BELOW_ROOTS))
LONG_AGO, IN_FUTURE = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


class Child:
    """A controller that does nothing: when it ran, and what was visible when it started."""

    def __init__(self, visible: Callable[[], Any]) -> None:
        self.starts: list[dict[str, set[str]]] = []
        self.stops = 0
        self.may_start = asyncio.Event()
        self.may_start.set()
        self._visible = visible
        self._exit_code: asyncio.Future[int] | None = None

    async def start(self) -> None:
        await self.may_start.wait()
        self.starts.append(await self._visible())
        self._exit_code = asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        self.stops += 1

    async def wait(self) -> int:
        assert self._exit_code is not None
        return await asyncio.shield(self._exit_code)

    def crash(self, code: int) -> None:
        assert self._exit_code is not None
        self._exit_code.set_result(code)


class RunsBench:
    """One shard's runs, and the administrator who plays sharder and controllers."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.child = Child(self.visible)
        self.stopping, self.over = asyncio.Event(), asyncio.Event()
        self.restarts: list[Cause] = []
        self.made: list[weakref.ref[Trees]] = []
        """The trees of each run."""
        clock, rng = SystemClock(), random.Random(1)
        existence = Existence(client, [kind.resource for kind in KINDS])
        self.gate = Gate(LeaseValidity(duration_s=600, sent_at=clock.now()), existence, clock=clock)
        reads = SharedLeaseReads(Leases(client, namespace))
        writer = self.writer = ObjectWriter(
            client, reads, keys=KEYS, shard=SHARD, resources={kind.name: kind.resource for kind in KINDS}
        )
        self.since = LONG_AGO
        self.kinds = KINDS

        def follow(trees: Trees, changed: Callable[[], None]) -> TreeInformers:
            return TreeInformers(
                client, self.kinds, trees, keys=KEYS, shard=SHARD, changed=changed, clock=clock, rng=rng
            )

        def runs(pace: Pace) -> Runs:
            return Runs(
                self.child,
                self.gate,
                Handover(writer, clock=clock),
                new_trees=self.new_trees,
                follow=follow,
                pace=pace,
                clock=clock,
                rng=rng,
            )

        self.new_runs = runs

    async def put(
        self, resource: ApiResource, name: str, *, shard: str = SHARD, of: str = "", **labels: str
    ) -> None:
        """An object with ring labels: `visible` and `drain`; *of*: the root that controls it."""
        meta: dict[str, Any] = {
            "name": name,
            "labels": {KEYS.shard: shard} | {getattr(KEYS, key): value for key, value in labels.items()},
        }
        if of:
            root = await self.meta(ROOTS, of)
            owner = OwnerReference("v1", "ConfigMap", of, root.uid, controller=True)
            meta["ownerReferences"] = [msgspec.to_builtins(owner)]
        await self.client.create(resource, {"metadata": meta}, namespace=self.namespace, type=bytes)

    async def label(self, resource: ApiResource, name: str, **labels: str | None) -> None:
        change = {"metadata": {"labels": {getattr(KEYS, key): value for key, value in labels.items()}}}
        await self.client.patch(resource, name, MergePatch(change), namespace=self.namespace, type=bytes)

    async def meta(self, resource: ApiResource, name: str) -> Meta:
        return (await self.client.get(resource, name, namespace=self.namespace, type=HasMeta)).metadata

    async def labels(self, resource: ApiResource, name: str) -> dict[str, str]:
        return dict((await self.meta(resource, name)).labels)

    async def new_trees(self) -> Trees:
        trees = Trees(SHARD, since=self.since)
        self.made.append(weakref.ref(trees))
        return trees

    async def visible(self) -> dict[str, set[str]]:
        """What the controller's selector shows."""
        selector = f"{KEYS.shard}={SHARD},{KEYS.visible}={SHARD}"
        found = {}
        for resource in (ROOTS, CHILDREN):
            page = await self.client.list_page(
                resource, namespace=self.namespace, label_selector=selector, limit=0
            )
            found[resource.plural] = {found_object.meta.name for found_object in page.objects}
        return found

    async def lease(self, name: str) -> None:
        meta = Meta(name=name, namespace=self.namespace, labels={KEYS.ring_label: KEYS.ring})
        await self.client.create(
            LEASES, Lease(meta, LeaseSpec(name, 15)), namespace=self.namespace, type=bytes
        )

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not holds():  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.02)

    async def wait_visible(self, root: str) -> None:
        async with asyncio.timeout(15):
            while root not in (await self.visible())["configmaps"]:  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.02)

    def begin(self, *, calm_s: float = 0.05) -> asyncio.Task[None]:
        self.runs = self.new_runs(Pace(settle_s=0.2, longest_s=1.0, calm_s=calm_s, longest_calm_s=5.0))
        running = self.runs.run(
            self.stopping, over=self.over, on_restart=lambda cause, _: self.restarts.append(cause)
        )
        return asyncio.create_task(running)

    @asynccontextmanager
    async def running(self, *, calm_s: float = 0.05) -> AsyncIterator[None]:
        task = self.begin(calm_s=calm_s)
        await self.wait_for(lambda: task.done() or self.runs.why_down is None)
        yield
        self.stopping.set()
        self.over.set()
        async with asyncio.timeout(15):
            await task


@asynccontextmanager
async def runs_bench(plane: EmbeddedPlane) -> AsyncIterator[RunsBench]:
    """A bench in a namespace of its own."""
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        namespace = f"pairs-{secrets.token_hex(4)}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}}, type=bytes)
        yield RunsBench(client, namespace)
