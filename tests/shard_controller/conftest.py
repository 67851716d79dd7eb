"""An embedded control plane with a ring and no sharder: tests write the labels, real shard processes answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import Write
from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, LEASES, ApiResource
from kubeio.rest.client import Client
from tests.manifests import manifest
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "acting.py"
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
KEYS = RingKeys("sites")
NAMESPACE = "default"

Object = dict[str, Any]


@dataclass
class Shard:
    """A replica as a process of its own, under an account of its own."""

    member: str
    process: asyncio.subprocess.Process
    journal: Path
    log: Path
    name: str = ""

    def records(self, kind: str) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        lines = self.journal.read_text().splitlines()
        return [record for line in lines if (record := json.loads(line))["e"] == kind]

    def reconciles(self, site: str) -> list[dict[str, Any]]:
        return [record for record in self.records("begin") if record["key"] == f"{NAMESPACE}/{site}"]

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [record for line in lines if (record := json.loads(line)).get("event") == event]

    @property
    def pid(self) -> int:
        """The process that works; `process` may only wait for it."""
        fork = self.journal.with_suffix(".pid")
        return int(fork.read_text()) if fork.exists() else self.process.pid

    def signal(self, number: int) -> None:
        if self.process.returncode is None:
            os.kill(self.pid, number)

    async def terminate(self, within_s: float = 15) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended(within_s)

    async def ended(self, within_s: float = 15) -> int:
        async with asyncio.timeout(within_s):
            return await self.process.wait()


class Bench:
    """What the tests do to the cluster, as its administrator (and in place of the sharder)."""

    def __init__(self, plane: EmbeddedPlane, client: Client, directory: Path) -> None:
        self.plane = plane
        self.client = client
        self.keys = KEYS
        self._directory = directory
        self._shards: list[Shard] = []

    async def install(self) -> None:
        for path in ("manifests/crds/ringleader.dev_controllerrings.yaml", "examples/website/crd.yaml"):
            crd = manifest(ROOT / path)
            await self.client.create(CRDS, crd, type=dict)
        ring = {
            "apiVersion": "ringleader.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": KEYS.ring},
            "spec": {
                "leaseNamespace": NAMESPACE,
                "resources": [
                    {
                        "group": "example.com",
                        "resource": "websites",
                        "controlledResources": [{"group": "", "resource": "configmaps"}],
                    }
                ],
            },
        }
        await self.until(lambda: self._accepted(ring), within_s=10)
        await self.until(lambda: self._lists(WEBSITES), within_s=10)

    async def _accepted(self, ring: Object) -> bool:
        try:
            await self.client.create(CONTROLLER_RINGS, ring, type=dict)
        except KubeError:
            return False
        return True

    async def _lists(self, resource: ApiResource) -> bool:
        try:
            await self.client.list_page(resource)
        except KubeError:
            return False
        return True

    # -- shards

    async def start(
        self,
        member: str,
        *,
        attribute: str = "sites",
        program: str = "",
        duration_s: int = 3,
        mode: str = "sharded",
        env: dict[str, str] | None = None,
        flags: tuple[str, ...] = (),
        module: str = "shard_controller",
        wait: bool = True,
        warm: bool = True,
    ) -> Shard:
        """A shard process that has a Lease and watches; *warm*: a fork, whose memory is not a replica's."""
        number = len(self._shards)
        journal, log = (
            self._directory / f"{member}-{number}.journal",
            self._directory / f"{member}-{number}.log",
        )
        kubeconfig = await self.plane.kubeconfig_for(member)
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                warm_python() if warm else sys.executable,
                *("-m", module, "run", program or f"{PROGRAM}:{attribute}"),
                *("--ring", KEYS.ring, "--member", member, "--mode", mode),
                *("--lease-duration", str(duration_s), "--kubeconfig", str(kubeconfig)),
                *("--journal", str(journal), "--log-format", "json", "--log-level", "debug"),
                *flags,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "WARM_PYTHON_PID": str(journal.with_suffix(".pid")), **(env or {})},
                start_new_session=True,
            )
        shard = Shard(member, process, journal, log)
        self._shards.append(shard)
        if wait:
            await self.until(lambda: _true(shard.logged("working")), within_s=20, why=log.read_text)
            shard.name = shard.records("life")[-1]["shard"]
        return shard

    async def stop_all(self) -> None:
        for shard in self._shards:
            if shard.process.returncode is None:
                shard.signal(signal.SIGKILL)
                await shard.process.wait()

    # -- objects

    async def site(
        self, name: str, html: str, *, owner: Shard | str = "", labels: dict[str, str] | None = None
    ) -> Object:
        """Create a Website that belongs to *owner*."""
        shard = owner.name if isinstance(owner, Shard) else owner
        marks = {**({KEYS.shard: shard} if shard else {}), **(labels or {})}
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": marks},
            "spec": {"html": html},
        }
        return await self.client.create(WEBSITES, body, namespace=NAMESPACE, type=dict)

    async def label(self, resource: ApiResource, name: str, **labels: str | None) -> Object:
        """Write the labels `shard` and `drain` of an object."""
        marks = {getattr(KEYS, key): value for key, value in labels.items()}
        return await self.client.patch(
            resource, name, MergePatch({"metadata": {"labels": marks}}), namespace=NAMESPACE, type=dict
        )

    async def edit(self, name: str, html: str) -> Object:
        return await self.client.patch(
            WEBSITES, name, MergePatch({"spec": {"html": html}}), namespace=NAMESPACE, type=dict
        )

    async def find(self, resource: ApiResource, name: str) -> Object | None:
        try:
            return await self.client.get(resource, name, namespace=NAMESPACE, type=dict)
        except KubeError:
            return None

    async def get(self, plural: str, name: str) -> Object:
        """The Website or ConfigMap *name*; empty if there is none."""
        return await self.find(WEBSITES if plural == "websites" else CONFIGMAPS, name) or {}

    async def distribute(self, entry: Object) -> None:
        """Have the ring give out one more resource."""
        ring = await self.client.get(CONTROLLER_RINGS, KEYS.ring, type=dict)
        resources = [*ring["spec"]["resources"], entry]
        change = MergePatch({"spec": {"resources": resources}})
        await self.client.patch(CONTROLLER_RINGS, KEYS.ring, change, type=dict)

    async def secret(self, name: str, data: dict[str, str], *, labels: dict[str, str] | None = None) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels or {}},
            "data": data,
        }
        await self.client.create(SECRETS, body, namespace=NAMESPACE, type=dict)

    async def lease(self, shard: Shard) -> Object | None:
        return await self.find(LEASES, shard.name)

    async def labels(self, resource: ApiResource, name: str) -> dict[str, str]:
        found = await self.find(resource, name)
        return dict((found or {"metadata": {}})["metadata"].get("labels", {}))

    async def owner(self, resource: ApiResource, name: str) -> str:
        return (await self.labels(resource, name)).get(KEYS.shard, "")

    async def page(self, name: str) -> str:
        found = await self.find(CONFIGMAPS, name)
        return found["data"]["page"] if found else ""

    def writes(self, user: str = "", *, resource: str = "", verb: str = "", code: int = 0) -> list[Write]:
        return [
            write
            for write in self.plane.writes()
            if (not user or write.user == user)
            and (not resource or write.resource == resource)
            and (not verb or write.verb == verb)
            and (not code or write.code == code)
        ]

    async def until(
        self,
        holds: Callable[[], Awaitable[object]],
        *,
        within_s: float = 10,
        why: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait until *holds* says something true; fails with the logs of every shard."""
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - what is waited for happens on a server
                    await asyncio.sleep(0.03)
        except TimeoutError:
            logs = "\n".join(f"--- {s.member}\n{s.log.read_text()[-3000:]}" for s in self._shards)
            pytest.fail(f"did not happen within {within_s} s\n{why()}\n{logs}")


async def _true(value: object) -> object:
    return value


@pytest.fixture
async def bench(new_plane: EmbeddedPlane, tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        cluster = load_cluster(kubeconfig=str(new_plane.kubeconfig))
        client = await stack.enter_async_context(Client(cluster))
        bench = Bench(new_plane, client, tmp_path)
        stack.push_async_callback(bench.stop_all)
        await bench.install()
        yield bench
