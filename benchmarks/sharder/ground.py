"""What all rows stand on: a control plane with both kinds, namespaces, accounts and one ring, and a watch over it.

Owns their beginning and their end. The accounts of sharder, replicas and wrk are alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measuring.planes import Account, make_account, open_plane, writer_for
from benchmarks.measuring.sightings import LeaseSightings, Sightings
from benchmarks.measuring.stock import Marker, Stock
from benchmarks.sharder.stand_ins import StandIns
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
from ringleader.testing.ground import prepare_kinds, prepare_namespaces, prepare_ring

RING: Final = "websites"
OBJECTS_IN: Final = "bench-objects"
LEASES_IN: Final = "bench-leases"
MEMBERS: Final = ("stand-in-1", "stand-in-2", "stand-in-3")
STAND_IN_LEASE_S: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Everything that a row needs and does not own."""

    plane: ControlPlane
    directory: Path
    spec: FleetSpec
    client: Client
    cluster: Cluster
    sharder: Account
    replica: Account
    sightings: Sightings
    leases: LeaseSightings
    stock: Stock
    stand_ins: StandIns
    clock: Clock

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    @property
    def resource(self) -> ApiResource:
        return self.spec.resource

    @property
    def is_real(self) -> bool:
        return isinstance(self.plane, RealPlane)


@asynccontextmanager
async def open_ground(
    directory: Path,
    *,
    is_real: bool,
    objects: int,
    lease_s: int,
    stand_in_lease_s: int = STAND_IN_LEASE_S,
    apiserver_flags: Sequence[str] = (),
) -> AsyncIterator[Ground]:
    """A control plane with a ring and no shards, ended with the block. Raises: BinariesMissing."""
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
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(
            open_plane(directory / "plane", is_real=is_real, apiserver_flags=apiserver_flags)
        )
        administrator = await stack.enter_async_context(IndependentClient(plane.kubeconfig))
        await prepare_kinds(administrator, spec=spec)
        await prepare_namespaces(administrator, spec=spec)
        await prepare_ring(administrator, spec=spec)
        cluster = load_cluster(kubeconfig=str(plane.kubeconfig))
        client = await stack.enter_async_context(Client(cluster, user_agent="ringleader-bench"))
        sightings = Sightings(client, spec.resource, keys=spec.keys, clock=clock)
        leases = LeaseSightings(client, LEASES_IN, clock=clock)
        stand_ins = StandIns(
            client,
            spec.resource,
            keys=spec.keys,
            lease_namespace=LEASES_IN,
            lease_s=stand_in_lease_s,
            clock=clock,
        )
        writer = await writer_for(
            plane, client, stack, resource=spec.resource, namespace=OBJECTS_IN, keys=spec.keys
        )
        await stack.enter_async_context(unwrapped())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        loops = [
            tasks.create_task(loop.run(), name=f"{type(loop).__name__} loop")
            for loop in (sightings, leases, stand_ins)
        ]
        stack.callback(lambda: [loop.cancel() for loop in loops])
        await sightings.listed.wait()
        yield Ground(
            plane=plane,
            directory=directory,
            spec=spec,
            client=client,
            cluster=cluster,
            sharder=await make_account(plane, client, "sharder", namespace=LEASES_IN),
            replica=await make_account(plane, client, "replica", namespace=LEASES_IN),
            sightings=sightings,
            leases=leases,
            stock=Stock(writer, sightings, objects, marker=Marker(client, spec.resource, spec.namespace)),
            stand_ins=stand_ins,
            clock=clock,
        )


async def forget_shards(ground: Ground) -> None:
    """Delete every Lease: the next row begins with members of its own only. No sharder may run."""
    await ground.stand_ins.leave()
    leases = Leases(ground.client, LEASES_IN)
    found, _ = await leases.list()
    for lease in found:
        await ground.client.delete(LEASES, lease.metadata.name, namespace=LEASES_IN)
