"""An embedded control plane with a ring and no sharder: tests write the labels, real shard processes answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import Write
from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, LEASES, ApiResource
from kubeio.rest.client import Client
from tests.manifests import manifest
from tests.shard_controller.objects import CONFIGMAPS, KEYS, SECRETS, WEBSITES, reference
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "acting.py"
NAMESPACE = "default"
ANY_TRUE = object()
RING = {
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

Object = dict[str, Any]


def whole_lines(path: Path) -> list[str]:
    """Lines of a file that another process writes: the last one may be half written."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@dataclass
class Shard:
    """A replica as a process of its own, under an account of its own."""

    member: str
    process: asyncio.subprocess.Process
    journal: Path
    log: Path
    port_file: Path
    name: str = ""

    def records(self, kind: str) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        lines = whole_lines(self.journal)
        return [record for line in lines if (record := json.loads(line))["e"] == kind]

    def reconciles(self, site: str) -> list[dict[str, Any]]:
        return [record for record in self.records("begin") if record["key"] == f"{NAMESPACE}/{site}"]

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in whole_lines(self.log) if line.startswith("{")]
        return [record for line in lines if (record := json.loads(line)).get("event") == event]

    @property
    def pid(self) -> int:
        """The process that works; `process` may only wait for it."""
        fork = self.journal.with_suffix(".pid")
        return int(fork.read_text()) if fork.exists() else self.process.pid

    def signal(self, number: int) -> None:
        if self.process.returncode is None:
            os.kill(self.pid, number)

    def outcomes(self) -> list[str]:
        return [record["outcome"] for record in self.records("end")]

    async def page(self, path: str, *, address: str = "127.0.0.1", token: str = "") -> tuple[int, Any]:
        """Status and body of a page that the process serves; JSON is decoded."""
        port = int(self.port_file.read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        credentials = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{credentials}Connection: close\r\n\r\n"
        writer.write(head.encode())
        answer, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return int(answer.split()[1]), json.loads(body) if body.startswith("{") else body

    async def metrics(self) -> dict[str, float]:
        """Samples by name and labels."""
        lines = (await self.page("/metrics"))[1].splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }

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
        for resource in (CONTROLLER_RINGS, WEBSITES):
            await self.until(lambda resource=resource: self._lists(resource))  # type: ignore[misc] # bound now
        await self.client.create(CONTROLLER_RINGS, RING, type=dict)

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
        journal, log, port = (
            self._directory / f"{member}-{number}.{end}" for end in ("journal", "log", "port")
        )
        kubeconfig = await self.plane.kubeconfig_for(member)
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                warm_python() if warm else sys.executable,
                *("-m", module, "run", program or f"{PROGRAM}:{attribute}"),
                *("--ring", KEYS.ring, "--member", member, "--mode", mode),
                *("--lease-duration", str(duration_s), "--kubeconfig", str(kubeconfig)),
                *("--journal", str(journal), "--log-format", "json", "--log-level", "debug"),
                *("--probes-port-file", str(port)),
                *flags,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "WARM_PYTHON_PID": str(journal.with_suffix(".pid")), **(env or {})},
                start_new_session=True,
            )
        shard = Shard(member, process, journal, log, port)
        self._shards.append(shard)
        if wait:
            await self.until(lambda: shard.logged("working"), within_s=20)
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

    async def merge(self, resource: ApiResource, name: str, **fields: Any) -> Object:
        """Write *fields* of an object by a merge patch."""
        return await self.client.patch(resource, name, MergePatch(fields), namespace=NAMESPACE, type=dict)

    async def edit(self, name: str, html: str) -> Object:
        return await self.merge(WEBSITES, name, spec={"html": html})

    async def delete(self, resource: ApiResource, name: str) -> None:
        await self.client.delete(resource, name, namespace=NAMESPACE)

    async def find(self, resource: ApiResource, name: str) -> Any:
        """The object *name*; None if there is none."""
        try:
            return await self.client.get(resource, name, namespace=NAMESPACE, type=dict)
        except KubeError:
            return None

    async def configmap(
        self, name: str, *, controller: Object, owner: str, other: Object | None = None
    ) -> None:
        """Create a ConfigMap that the Website *controller* controls, under the name *owner*.

        The Website *other* owns it, too: it stays when *controller* is gone.
        """
        references = [reference(controller["metadata"]["name"], controller["metadata"]["uid"])]
        if other is not None:
            also = reference(other["metadata"]["name"], other["metadata"]["uid"])
            references.append(also | {"controller": False})
        meta = {"name": name, "labels": {KEYS.shard: owner}, "ownerReferences": references}
        body = {"metadata": meta, "data": {"page": "old"}}
        await self.client.create(CONFIGMAPS, body, namespace=NAMESPACE, type=dict)

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

    async def lease(self, shard: Shard) -> Any:
        return await self.find(LEASES, shard.name)

    async def holder(self, shard: Shard) -> str:
        return str((await self.lease(shard))["spec"].get("holderIdentity", ""))

    async def is_free(self, resource: ApiResource, name: str) -> bool:
        """Whether it has neither of the ring's labels."""
        return not {KEYS.shard, KEYS.drain} & set(await self.labels(resource, name))

    async def is_deleted(self, name: str) -> bool:
        return await self.find(WEBSITES, name) is None

    async def status(self, name: str, field: str = "") -> Any:
        """The status of a Website, or one field of it."""
        status = (await self.get("websites", name)).get("status", {})
        return status.get(field) if field else status

    async def condition(self, name: str, kind: str = "Ready") -> str:
        """The status of a condition of a Website; empty if there is none."""
        conditions = await self.status(name, "conditions") or []
        return next((str(each["status"]) for each in conditions if each["type"] == kind), "")

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
        self, found: Callable[[], object], *, equals: object = ANY_TRUE, within_s: float = 10
    ) -> None:
        """Wait until *found*, which may be async, gives something true, or what it *equals*; else show all logs."""

        async def holds() -> bool:
            now = found()
            now = await now if inspect.isawaitable(now) else now
            return bool(now) if equals is ANY_TRUE else now == equals

        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - what is waited for happens on a server
                    await asyncio.sleep(0.03)
        except TimeoutError:
            logs = "\n".join(f"--- {s.member}\n{s.log.read_text()[-3000:]}" for s in self._shards)
            pytest.fail(f"did not happen within {within_s} s\n{logs}")


@asynccontextmanager
async def open_bench(plane: EmbeddedPlane, directory: Path) -> AsyncIterator[Bench]:
    """A bench on *plane*; its shards end with it."""
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        bench = Bench(plane, client, directory)
        try:
            await bench.install()
            yield bench
        finally:
            await bench.stop_all()
