"""A fleet of unmodified controllers: kube-controller-managers behind proxies, on a real plane, with its judges.

Owns the processes, what follows etcd, and the pods' lives. Does not own the control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from devcluster.real.binaries import find_binaries, kubernetes_recipe
from devcluster.real.etcd_watch import newest_revision, watch_etcd
from devcluster.real.real_plane import RealPlane
from kubeio.clock import Clock, SystemClock
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import NAMESPACES
from ringleader.assets import ring_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.fences import fence_objects
from ringleader.testing.fleet import unwrapped
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.prerequisites import install_definitions
from ringleader.testing.replica import Replica
from ringleader.testing.unmodified.pod_player import PodPlayer
from ringleader.testing.unmodified.rings import (
    DEPLOYMENTS,
    DEPLOYMENTS_RING,
    LEASE_NAMESPACE,
    MANAGER,
    ProxiedRing,
    proxy_command,
    sharder_command,
)
from ringleader.testing.unmodified.templates import deployment
from ringleader.testing.unmodified.workloads import Workloads

NAMESPACE: Final = "web"
_SHARDER: Final = "sharder"
_POLL_S: Final = 0.1
_SERVED_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFleetSpec:
    """What a fleet is made of. *qps*: requests per second that each controller allows itself."""

    ring: ProxiedRing = DEPLOYMENTS_RING
    lease_s: int = 5
    qps: int = 200
    patience_s: float = 120.0
    """How long a wait lasts at most."""


class ProxyFleet:
    """Made by `open_proxy_fleet`. Members are called deployments-0, deployments-1, ... by the ring."""

    def __init__(
        self,
        plane: RealPlane,
        directory: Path,
        *,
        spec: ProxyFleetSpec,
        client: IndependentClient,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.plane: Final = plane
        self.directory: Final = directory
        self.spec: Final = spec
        self.client: Final = client
        self.clock: Final = clock
        self.places: Final[dict[str, Replica]] = {}
        """Proxies by member."""
        player = PodPlayer(client, tasks=tasks, rng=rng)
        self.workloads: Final = Workloads(spec.ring, namespace=NAMESPACE, on_pod=player.see)
        self.sharder: Replica | None = None
        self._tasks: Final = tasks
        self._running: Final[list[asyncio.Task[None]]] = []

    # -- start and end --------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create the ring and its namespaces, and follow etcd; `changes.log` has a line for each change."""
        await install_definitions(self.client, [ring_crd()])
        for name in (NAMESPACE, LEASE_NAMESPACE):
            await self.client.create_if_absent(NAMESPACES, {"metadata": {"name": name}})
        async with asyncio.timeout(_SERVED_WITHIN_S):
            ring = self.spec.ring
            await self._create_ring(ring)
            for resource, doc in fence_objects(ring.keys, ring.entries()):
                await self.client.create_if_absent(resource, doc)
        self._running.append(self._tasks.create_task(self._follow(), name="etcd"))

    async def _create_ring(self, ring: ProxiedRing) -> None:
        while True:
            try:
                return await self.client.create_if_absent(CONTROLLER_RINGS, ring.manifest())
            except RequestFailedError as error:
                if error.status != 404:  # not served yet
                    raise
            await asyncio.sleep(_POLL_S)

    async def _follow(self) -> None:
        with (self.directory / "changes.log").open("w") as log:
            async for changes in watch_etcd(self.plane.etcd_url):
                for change in changes:
                    if line := self.workloads.apply(change):
                        log.write(f"{datetime.now(UTC):%H:%M:%S.%f} {line}\n")

    async def start_sharder(self) -> None:
        kubeconfig = await self.plane.kubeconfig_for(_SHARDER)
        command = sharder_command(kubeconfig=kubeconfig, lease_s=self.spec.lease_s)
        self.sharder = self._place(_SHARDER, command)

    async def add(self) -> str:
        """Start one more proxy, or again one that was abandoned. Returns its member."""
        ring = self.spec.ring
        names = (f"{ring.name}-{number}" for number in range(len(self.places) + 1))
        name = next(name for name in names if name not in self.places or not self.places[name].is_wanted)
        if name not in self.places:
            command = proxy_command(
                ring,
                member=name,
                kubeconfig=await self.plane.kubeconfig_for(name),
                manager=find_binaries([MANAGER], kubernetes_recipe())[MANAGER],
                lease_s=self.spec.lease_s,
                qps=self.spec.qps,
            )
            self.places[name] = self._place(name, command)
        self.places[name].want()
        return name

    def _place(self, name: str, command: list[str]) -> Replica:
        place = Replica(
            name, command=lambda _: command, directory=self.directory, environment={}, clock=self.clock
        )
        place.want()
        self._running.append(self._tasks.create_task(place.run(), name=f"place-{name}"))
        return place

    async def stop(self) -> None:
        """End every proxy in its own time, and the sharder."""
        async with asyncio.TaskGroup() as tasks:
            for place in self.all_places():
                tasks.create_task(place.stop(grace_s=30.0), name=f"stop-{place.name}")

    async def close(self) -> None:
        """End every process, without grace."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    # -- the processes --------------------------------------------------------------------------------------

    def all_places(self) -> list[Replica]:
        return [*self.places.values(), *([self.sharder] if self.sharder is not None else [])]

    def wanted(self) -> list[str]:
        """Members whose place is to be filled."""
        return [name for name, place in self.places.items() if place.is_wanted]

    def kill(self, member: str, *, again: bool = False) -> None:
        """SIGKILL a proxy, and with it its controller; *again* starts another process in its place."""
        if not again:
            self.places[member].abandon()
        self.places[member].kill()

    def controller(self, member: str) -> int | None:
        """Process id of the controller behind *member*; None if it has none now."""
        process = self.places[member].current
        if process is None:
            return None
        for pid in _children(process.pid):
            with contextlib.suppress(OSError):
                if MANAGER.startswith(Path(f"/proc/{pid}/comm").read_text().strip()):
                    return pid
        return None

    def failures(self) -> list[str]:
        """Last lines of processes that ended with a traceback."""
        found = []
        for place in self.all_places():
            text = place.log.read_text(errors="replace") if place.log.exists() else ""
            if "Traceback (most recent call last)" in text:
                found.append(f"{place.name} wrote a traceback: {place.log}")
        return found

    # -- what there is --------------------------------------------------------------------------------------

    def owners(self) -> Counter[str]:
        """Root objects by member."""
        return self.workloads.owners()

    def is_shared(self) -> bool:
        """Whether every root is a member's whose place is filled, and every such member has some."""
        return set(self.owners()) == set(self.wanted())

    def unsettled(self) -> list[str]:
        """What is not as it must be at rest: workloads, and roots of members that are gone."""
        found = self.workloads.unsettled()
        strays = sorted(set(self.owners()) - set(self.wanted()))
        return [*found, *(f"roots of {name or 'no member'} are left" for name in strays)]

    async def catch_up(self) -> None:
        """Return when everything that etcd has carried out by now was judged."""
        revision = await newest_revision(self.plane.etcd_url)
        await self.wait_for("the judges have seen all", lambda: self.workloads.revision >= revision)

    async def wait_for(self, what: str, holds: Callable[[], bool], *, within_s: float | None = None) -> None:
        """Wait until *holds*. Raises: NotConvergedError with what is not at rest."""
        within_s = within_s or self.spec.patience_s
        deadline = self.clock.now() + within_s
        while not holds():
            if self.clock.now() > deadline:
                raise NotConvergedError(
                    f"not within {within_s:g} s: {what}; "
                    + "; ".join([*self.workloads.findings[:5], *self.unsettled()[:5]])
                )
            await asyncio.sleep(_POLL_S)

    async def wait_settled(self, *, within_s: float | None = None, quiet_s: float = 1.0) -> None:
        """Wait until everything is as it must be at rest, and stays so for *quiet_s*."""
        since = self.clock.now()

        def is_settled() -> bool:
            nonlocal since
            if self.unsettled():
                since = self.clock.now()
            return self.clock.now() - since >= quiet_s

        await self.wait_for("everything is settled", is_settled, within_s=within_s)
        await self.catch_up()

    # -- what users do --------------------------------------------------------------------------------------

    async def create_deployments(self, names: Sequence[str], *, replicas: int, at_once: int = 8) -> None:
        left = iter(names)

        async def worker() -> None:
            for name in left:
                await self.client.create(
                    DEPLOYMENTS, deployment(name, replicas=replicas), namespace=NAMESPACE
                )

        async with asyncio.TaskGroup() as tasks:
            for number in range(at_once):
                tasks.create_task(worker(), name=f"create-{number}")

    async def patch_deployment(self, name: str, change: Doc) -> None:
        await self.client.merge(DEPLOYMENTS, name, {"spec": change}, namespace=NAMESPACE)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


@asynccontextmanager
async def open_proxy_fleet(
    plane: RealPlane, directory: Path, *, spec: ProxyFleetSpec | None = None, seed: int = 1
) -> AsyncIterator[ProxyFleet]:
    """A fleet on *plane*, which stores JSON, with its files in *directory*; every process is gone after the block."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    async with (
        IndependentClient(await plane.kubeconfig_for("kubelet")) as client,
        unwrapped(),
        asyncio.TaskGroup() as tasks,
    ):
        fleet = ProxyFleet(
            plane,
            directory,
            spec=spec or ProxyFleetSpec(),
            client=client,
            tasks=tasks,
            clock=SystemClock(),
            rng=random.Random(seed),  # noqa: S311 - delays
        )
        try:
            await fleet.prepare()
            yield fleet
        finally:
            await fleet.close()
