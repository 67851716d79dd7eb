"""The testbed of a benchmark: a control plane with kinds, namespaces, accounts and objects, and watches over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.measuring.observations import LeaseObservations, Observations, wait_for
from benchmarks.measuring.planes import Account, make_account, open_plane, writer_for
from benchmarks.measuring.processes import Peaks
from benchmarks.measuring.stand_ins import StandIns
from benchmarks.measuring.stock import Collection, Stock
from devcluster.plane import ControlPlane
from devcluster.real import RealPlane
from kubeio.access.cluster import Cluster, load_cluster
from kubeio.clock import Clock, SystemClock
from kubeio.leases.lease import Leases
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.client import Client
from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import unwrapped
from ringleader.testing.prerequisites import prepare_kinds, prepare_namespaces, prepare_ring

RING: Final = "websites"
OBJECTS_IN: Final = "bench-objects"
LEASES_IN: Final = "bench-leases"
MEMBERS: Final = ("stand-in-1", "stand-in-2", "stand-in-3")
CLOCK: Final = SystemClock()
LEASE_S: Final = 15
"""Lease of sharders and replicas."""
STAND_IN_LEASE_S: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """Everything that a row needs and does not own."""

    plane: ControlPlane
    directory: Path
    spec: FleetSpec
    accounts: Mapping[str, Account]
    stock: Stock
    observations: Observations
    leases: LeaseObservations
    stand_ins: StandIns
    peaks: Peaks = field(default_factory=Peaks, init=False)
    """Of the sharders."""

    @property
    def clock(self) -> Clock:
        return CLOCK

    @property
    def client(self) -> Client:
        return self.stock.collection.client

    @property
    def cluster(self) -> Cluster:
        return load_cluster(kubeconfig=str(self.plane.kubeconfig))

    @property
    def sharder(self) -> Account:
        return self.accounts["sharder"]

    @property
    def replica(self) -> Account:
        return self.accounts["replica"]

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    @property
    def resource(self) -> ApiResource:
        return self.spec.resource

    @property
    def namespace(self) -> str:
        return self.spec.namespace

    @property
    def is_real(self) -> bool:
        return isinstance(self.plane, RealPlane)

    async def create(self, name: str) -> float:
        """Create an object beside the stock; the instant at which that returned."""
        await self.stock.collection.create(name, bytes)
        return self.clock.now()

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects beside the stock, and wait until the watch has seen it."""
        for name in names:
            await self.stock.collection.delete(name)
        objects = self.observations.objects
        await wait_for(lambda: objects.keys().isdisjoint(names), "the new objects to be gone", within_s=30)

    async def forget_shards(self) -> None:
        """Delete every Lease: the next row begins with members of its own only. No sharder may run."""
        await self.stand_ins.leave()
        found, _ = await Leases(self.client, LEASES_IN).list()
        for lease in found:
            await self.client.delete(LEASES, lease.metadata.name, namespace=LEASES_IN)


@asynccontextmanager
async def open_testbed(
    directory: Path,
    *,
    is_real: bool,
    objects: int,
    lease_s: int = LEASE_S,
    stand_in_lease_s: int = STAND_IN_LEASE_S,
    has_ring: bool = True,
    apiserver_flags: Sequence[str] = (),
) -> AsyncIterator[Testbed]:
    """A control plane without objects and shards, ended with the block. Raises: BinariesMissing.

    Without a ring the stand-ins do not watch either: the API server works for the measured program alone.
    """
    spec = FleetSpec(
        controller=f"{Path(__file__).with_name('noop.py')}:websites",
        ring=RING,
        controlled=(),
        namespace=OBJECTS_IN,
        lease_namespace=LEASES_IN,
        lease_s=lease_s,
        settle_s=2,
        workers=8,
        ring_spec={"maxLeaseDurationSeconds": 60},
    )
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(
            open_plane(directory / "plane", is_real=is_real, apiserver_flags=apiserver_flags)
        )
        administrator = await stack.enter_async_context(IndependentClient(plane.kubeconfig))
        await prepare_kinds(administrator, spec=spec)
        await prepare_namespaces(administrator, spec=spec)
        if has_ring:
            await prepare_ring(administrator, spec=spec)
        cluster = load_cluster(kubeconfig=str(plane.kubeconfig))
        client = await stack.enter_async_context(Client(cluster, user_agent="ringleader-bench"))
        collection = Collection(client, spec.resource, OBJECTS_IN, spec.keys)
        observations = Observations(client, spec.resource, keys=spec.keys, clock=CLOCK)
        leases = LeaseObservations(client, LEASES_IN, clock=CLOCK)
        stand_ins = StandIns(collection, lease_namespace=LEASES_IN, lease_s=stand_in_lease_s, clock=CLOCK)
        await stack.enter_async_context(unwrapped())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        loops = [observations.run(), leases.run(), *([stand_ins.run()] if has_ring else [])]
        running = [tasks.create_task(loop, name="testbed") for loop in loops]
        stack.callback(lambda: [task.cancel() for task in running])
        await observations.listed.wait()
        yield Testbed(
            plane=plane,
            directory=directory,
            spec=spec,
            accounts={
                name: await make_account(plane, client, name, namespace=LEASES_IN)
                for name in ("sharder", "replica")
            },
            stock=Stock(await writer_for(plane, stack, collection), observations, objects),
            observations=observations,
            leases=leases,
            stand_ins=stand_ins,
        )
