"""What all rows stand on: a control plane with its objects, an account, and a watch over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.measuring.planes import Account, make_account, open_plane, writer_for
from benchmarks.measuring.sightings import Sightings
from benchmarks.measuring.stock import Marker, Stock, StockWriter, Tick
from devcluster.plane import ControlPlane
from devcluster.real import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import Clock, SystemClock
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import unwrapped
from ringleader.testing.ground import prepare_kinds, prepare_namespaces

RING: Final = "websites"
OBJECTS_IN: Final = "bench-objects"
LEASES_IN: Final = "bench-leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Everything that a row needs and does not own."""

    plane: ControlPlane
    directory: Path
    spec: FleetSpec
    client: Client
    account: Account
    sightings: Sightings
    stock: Stock
    writer: StockWriter
    clock: Clock
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def resource(self) -> ApiResource:
        return self.spec.resource

    @property
    def namespace(self) -> str:
        return self.spec.namespace

    @property
    def is_real(self) -> bool:
        return isinstance(self.plane, RealPlane)

    def fresh_name(self, stem: str) -> str:
        """A name for a process that no other of this run has."""
        return f"{stem}-{next(self._numbers)}"

    async def set_back(self, names: Sequence[str], tick: Tick) -> None:
        """Let *names* be as they were when they were made, and wait until the watch has seen it."""
        await self.writer.write(names, {}, tick)
        await self.stock.catch_up()
        self.sightings.start_over()


@asynccontextmanager
async def open_ground(directory: Path, *, is_real: bool, objects: int, lease_s: int) -> AsyncIterator[Ground]:
    """A control plane without objects yet, ended with the block. Raises: BinariesMissing."""
    spec = FleetSpec(
        ring=RING,
        controlled=(),
        namespace=OBJECTS_IN,
        lease_namespace=LEASES_IN,
        lease_s=lease_s,
        ring_spec={"maxLeaseDurationSeconds": 60},
    )
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(open_plane(directory / "plane", is_real=is_real))
        administrator = await stack.enter_async_context(IndependentClient(plane.kubeconfig))
        await prepare_kinds(administrator, spec=spec)
        await prepare_namespaces(administrator, spec=spec)
        cluster = load_cluster(kubeconfig=str(plane.kubeconfig))
        client = await stack.enter_async_context(Client(cluster, user_agent="ringleader-bench"))
        sightings = Sightings(client, spec.resource, keys=spec.keys, clock=clock)
        writer = await writer_for(
            plane, client, stack, resource=spec.resource, namespace=OBJECTS_IN, keys=spec.keys
        )
        await stack.enter_async_context(unwrapped())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        looking = tasks.create_task(sightings.run(), name="sightings")
        stack.callback(looking.cancel)
        await sightings.listed.wait()
        yield Ground(
            plane=plane,
            directory=directory,
            spec=spec,
            client=client,
            account=await make_account(plane, client, "replica", namespace=LEASES_IN),
            sightings=sightings,
            stock=Stock(writer, sightings, objects, marker=Marker(client, spec.resource, OBJECTS_IN)),
            writer=writer,
            clock=clock,
        )
