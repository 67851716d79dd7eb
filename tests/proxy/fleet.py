"""A sharder and proxies as processes before a real kube-apiserver, and its administrator."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from devcluster.real import real_plane
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.models import Object
from kubeio.program.yaml_file import read_document
from kubeio.protocol import CONTROLLER_RINGS, RingEntry, RingKeys
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import ring_crd
from ringleader.testing.fences import fence_objects

NAMESPACE = "web"


class Fleet:
    """Processes of one *ring*; each logs into *folder*."""

    def __init__(self, ring: str, plane: RealPlane, client: Client, folder: Path) -> None:
        self.keys = RingKeys(ring)
        self.client = client
        self.folder = folder
        self._cluster = ("--kubeconfig", str(plane.kubeconfig), "--lease-duration", "5s")
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("w") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=log, stderr=asyncio.subprocess.STDOUT
            )

    async def start_sharder(self) -> None:
        await self.start("sharder", "-m", "sharder", *self._cluster, "--lease-namespace", "rings")

    async def start_proxy(self, member: str, flags: Sequence[str], command: Sequence[str]) -> None:
        own = ("--ring", self.keys.ring, "--member", member)
        await self.start(member, "-m", "proxy", *own, *flags, *self._cluster, "--", *command)

    def names(self) -> list[str]:
        """Processes that run."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    def kill(self, name: str) -> None:
        self._processes[name].kill()

    async def stop(self) -> None:
        for name in self.names():
            self._processes[name].terminate()
        for name, process in self._processes.items():
            async with asyncio.timeout(60):
                assert await process.wait() in (0, -9), (self.folder / f"{name}.log").read_text()[-2000:]

    async def objects(self, resource: ApiResource) -> list[Object]:
        return (await self.client.list_page(resource, namespace=NAMESPACE, limit=0)).objects

    async def owners(self, resource: ApiResource) -> Counter[str]:
        """Objects of *resource* that each member has."""
        labels = [found.meta.labels.get(self.keys.shard, "") for found in await self.objects(resource)]
        return Counter(label.rpartition("-")[0] for label in labels)

    async def wait_shared(self, resource: ApiResource, *members: str) -> None:
        """Return when *members*, and no others, have objects of *resource*."""

        async def are_shared() -> bool:
            return (await self.owners(resource)).keys() == set(members)

        await self.wait_for(f"{resource.plural} shared by {members}", are_shared)

    async def wait_for(
        self, what: str, holds: Callable[[], Awaitable[bool]], *, within_s: float = 60
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - it happens on a server
                    await asyncio.sleep(0.2)
        except TimeoutError:
            logs = {path.name: path.read_text()[-1500:] for path in self.folder.glob("*.log")}
            raise AssertionError(f"not within {within_s:g} s: {what}; {logs}") from None


@asynccontextmanager
async def open_fleet(
    ring: Mapping[str, Any], folder: Path, *, crds: Sequence[object] = ()
) -> AsyncIterator[Fleet]:
    """A plane with *ring* and *crds*; no process of the ring runs yet."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(real_plane(folder / "plane", controller_manager=False))
        client = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(plane.kubeconfig))))
        for definition in (read_document("definition", ring_crd()), *crds):
            await client.create(CRDS, definition, type=bytes)
        for name in ("rings", NAMESPACE):
            await client.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)
        fleet = Fleet(ring["metadata"]["name"], plane, client, folder)

        async def is_created() -> bool:
            try:
                await client.create(CONTROLLER_RINGS, ring, type=bytes)
            except KubeError:  # not served yet
                return False
            return True

        await fleet.wait_for("the ring's resource is served", is_created, within_s=20)
        entries = msgspec.convert(ring["spec"]["resources"], type=list[RingEntry])
        for resource, doc in fence_objects(fleet.keys, entries):
            await client.create(resource, doc, type=bytes)
        try:
            yield fleet
        except BaseException:
            for name in fleet.names():
                fleet.kill(name)
            raise
        await fleet.stop()


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """*work* runs until the block ends."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
