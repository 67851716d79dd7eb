"""A fleet as pods on real nodes: the chart installed by Helm, traffic, both checks, and one row for each act.

The same evidence as of fleets of processes (`ringleader.testing`): journals through a hostPath volume, the API server's
audit log, and the containers as the kernel sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import aiohttp
import msgspec

from devcluster.image import NAME
from devcluster.nodes import NodePlane
from devcluster.plane import Write
from kubeio.clock import SystemClock
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import LEASES, ApiResource
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.commands import CONFIGMAPS, FleetSpec
from ringleader.testing.evidence import Evidence
from ringleader.testing.journal import Journal, Record
from ringleader.testing.objects import Objects
from ringleader.testing.ownership_checks import replica_changes
from tests.chart.helm import Helm
from tests.cluster.containers import ContainerWatch

RELEASE = "ringleader"
SYSTEM = "ringleader-system"
SHARDER = "ringleader-sharder"
REPLICAS = "websites"
IMAGE = f"{NAME}:{version('ringleader')}"
PROGRAM = "websites-program"
"""ConfigMap with the reconciler: the image is the released one."""
KEYS = RingKeys("websites")
SPEC = FleetSpec(lease_namespace=f"{RELEASE}-{KEYS.ring}", lease_s=15)
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
STATEFULSETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
PODS = ApiResource("", "v1", "pods", "Pod")
NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)
_NO_ANSWER = (aiohttp.ClientError, RequestFailedError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Row:
    """What an act cost: how long an object had no worker at most, and how many objects changed their member."""

    act: str
    longest_s: float
    moved: int
    took_s: float


class PodFleet:
    """The release on *plane*; journals are in *journals*."""

    def __init__(self, plane: NodePlane, client: IndependentClient, *, helm: Helm, journals: Path) -> None:
        self.plane = plane
        self.client = client
        self.helm = helm
        self.clock = SystemClock()
        self.objects = Objects(client, namespace=SPEC.namespace, clock=self.clock)
        self.watch = ContainerWatch(plane.cgroup, clock=self.clock)
        self.rows: list[Row] = []
        self.replicas = 3
        self.workers = 4
        self._journal_folder = journals
        self._journals: dict[Path, Journal] = {}
        self._since = self.clock.now()

    # -- the release ----------------------------------------------------------------------------------------

    def values(self, *, image: str = IMAGE) -> Doc:
        """Values of the chart: one ring, one controller of `replicas` with `workers` each."""
        repository, _, tag = IMAGE.partition(":")
        controlled = [{"group": "", "resource": "configmaps"}]
        journals = {"path": str(self._journal_folder), "type": "Directory"}
        return {
            "image": {"repository": repository, "tag": tag},
            "sharder": {"leaseDurationSeconds": SPEC.lease_s, "webhook": {"enabled": True}},
            "rings": {
                KEYS.ring: {
                    "settleSeconds": 1,
                    "holdSeconds": 60,
                    "maxLeaseDurationSeconds": 2 * SPEC.lease_s,
                    "assignAtAdmission": True,
                    "resources": [
                        {"group": "example.com", "resource": "websites", "controlledResources": controlled}
                    ],
                }
            },
            "controllers": {
                REPLICAS: {
                    "ring": KEYS.ring,
                    "image": {"repository": image.partition(":")[0], "tag": image.partition(":")[2]},
                    "target": "/app/controller.py:websites",
                    "replicas": self.replicas,
                    "leaseDurationSeconds": SPEC.lease_s,
                    "extraArgs": ["--journal=/journals/$(POD_NAME)", f"--workers={self.workers}"],
                    "env": [{"name": "WEBSITE_WAIT_MS", "value": "0-50"}],
                    "pod": {
                        "volumes": [
                            {"name": "journals", "hostPath": journals},
                            {"name": "program", "configMap": {"name": PROGRAM}},
                        ]
                    },
                    "volumeMounts": [
                        {"name": "journals", "mountPath": "/journals"},
                        {"name": "program", "mountPath": "/app"},
                    ],
                    "rules": [
                        {"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]},
                        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "delete"]},
                    ],
                }
            },
        }

    async def upgrade(self, *, image: str = IMAGE) -> None:
        await self.helm.upgrade(RELEASE, self.values(image=image), namespace=SYSTEM)

    async def restart(self, resource: ApiResource, name: str) -> None:
        """`kubectl rollout restart`."""
        annotation = {"kubectl.kubernetes.io/restartedAt": str(time.time())}
        template = {"metadata": {"annotations": annotation}}
        await self.client.merge(resource, name, {"spec": {"template": template}}, namespace=SYSTEM)

    async def pods(self, prefix: str = REPLICAS) -> list[Doc]:
        found = await self.client.list_all(PODS, namespace=SYSTEM)
        return [pod for pod in found if pod["metadata"]["name"].startswith(prefix)]

    async def evict(self, name: str) -> None:
        """One eviction, as `kubectl drain` asks for it. Raises: RequestFailedError, 429 if a budget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": SYSTEM},
        }
        path = f"{PODS.path(namespace=SYSTEM, name=name)}/eviction"
        await self.client.request("POST", path, body=body)

    async def replaced(self, name: str, order: Awaitable[None]) -> None:
        """Carry out *order*, and wait until another pod *name* is there."""
        before = (await self.client.get(PODS, name, namespace=SYSTEM))["metadata"]["uid"]
        await order

        async def same() -> str:
            now = (await self.client.get(PODS, name, namespace=SYSTEM))["metadata"]["uid"]
            return f"{name} is the same pod" if now == before else ""

        await eventually(same, within_s=120)

    async def drain(self, node: str) -> None:
        """`kubectl drain`: cordon, then evict all pods, each as soon as its budget allows."""
        await self.cordon(node)
        left = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await self.pods("") if on(p) == node}
        async with asyncio.timeout(300):
            while left:
                there = {pod["metadata"]["uid"] for pod in await self.pods("")}
                for name, uid in list(left.items()):
                    if uid not in there:
                        del left[name]
                        continue
                    with contextlib.suppress(RequestFailedError):  # its budget forbids it now, or it is gone
                        await self.evict(name)
                await asyncio.sleep(0.5)

    async def cordon(self, node: str, *, unschedulable: bool = True) -> None:
        await self.client.merge(NODES, node, {"spec": {"unschedulable": unschedulable}})

    async def leader(self) -> str:
        """The pod of the sharder that leads; empty if none does."""
        leases = await self.client.list_all(LEASES, namespace=SYSTEM)
        holders = {(lease.get("spec") or {}).get("holderIdentity") or "" for lease in leases}
        leaders = [pod["metadata"]["name"] for pod in await self.pods(SHARDER)]
        return next((str(name) for name in leaders if name in holders), "")

    async def wait_leader(self) -> str:
        """`leader`, as soon as there is one."""

        async def nobody() -> str:
            return "" if await self.leader() else "no sharder leads"

        await eventually(nobody, within_s=60)
        return await self.leader()

    # -- acts -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def act(self, name: str, *, within_s: float = 180.0) -> AsyncIterator[None]:
        """The block breaks or changes something under load; after it the fleet settles, and both checks judge it."""
        began = self.clock.now()
        yield
        await self.wait_settled(within_s=within_s)
        until = self.clock.now()
        evidence = self.evidence(since=began, until=until)
        longest = evidence.longest_unattended
        row = Row(
            name,
            longest_s=longest.length_s if longest else 0.0,
            moved=evidence.movement(since=began, until=until).moved,
            took_s=until - began,
        )
        self.rows.append(row)
        print(f"\n{row.act}: at most {row.longest_s:.1f} s without a worker ({longest}), {row.moved} moved")
        assert not evidence.overlaps, evidence.overlaps
        assert not evidence.foreign_writes, evidence.foreign_writes
        evidence.require_reconciles(100)
        judged = replica_changes(evidence.judged, resources=SPEC.resources, replicas=evidence.replicas)
        assert len({write.user for write in judged}) >= 3, "the write check saw no writes of some replicas"

    def evidence(self, *, since: float, until: float) -> Evidence:
        """All records so far; availability is judged from *since* to *until*."""
        return Evidence(
            spec=SPEC,
            records=self.watch.with_pids(self._records()),
            writes=[_by_pod(write) for write in self.plane.writes()],
            processes=self.watch.spans(),
            replicas=frozenset(f"{REPLICAS}-{index}" for index in range(10)),
            demands=[demand for demand in self.objects.demands if demand.t < until - 1],
            since=self._since,
            settled_since=since,
            until=until,
        )

    def _records(self) -> list[Record]:
        for path in self._journal_folder.iterdir():
            self._journals.setdefault(path, Journal(path)).read()
        return [record for journal in self._journals.values() for record in journal.records]

    # -- waiting --------------------------------------------------------------------------------------------

    async def wait_settled(self, *, within_s: float) -> None:
        """Wait until all pods are ready, no object is an orphan, and each was reconciled since the call."""
        wanted = await self.objects.generations()

        async def unsettled() -> str:
            return await self._not_ready() or await self.orphans() or await self._behind(wanted)

        await eventually(unsettled, within_s=within_s)

    async def orphans(self) -> str:
        """Why objects have no living owner, or the ring is not balanced; empty if all is well."""
        status = (await self.client.get(CONTROLLER_RINGS, KEYS.ring)).get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        if conditions.get("Ready") != "True" or conditions.get("Balanced") != "True":
            return f"the ring says {status}"
        if status["availableShards"] != self.replicas or status["unassigned"] or status["inFlight"]:
            return f"the ring says {status}"
        leases = await self.client.list_all(LEASES, namespace=SPEC.lease_namespace)
        held = {
            lease["metadata"]["name"]
            for lease in leases
            if lease["spec"].get("holderIdentity") == lease["metadata"]["name"]
        }
        for resource in (SPEC.resource, CONFIGMAPS):
            for name, labels in (await self.objects.labels(resource=resource)).items():
                if labels.get(KEYS.shard, "") not in held and name != "kube-root-ca.crt":
                    return f"{resource.plural} {name} is an orphan: {labels}"
        return ""

    async def _not_ready(self) -> str:
        for resource, name in ((DEPLOYMENTS, SHARDER), (STATEFULSETS, REPLICAS)):
            workload = await self.client.get(resource, name, namespace=SYSTEM)
            wanted, status = workload["spec"]["replicas"], workload.get("status") or {}
            figures = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
            is_seen = status.get("observedGeneration") == workload["metadata"]["generation"]
            if not is_seen or figures != [wanted] * 3:
                return f"{name}: {status}"
        return ""

    async def _behind(self, wanted: dict[str, int]) -> str:
        behind = await self.objects.behind(wanted)
        return f"{len(behind)} objects are behind, such as {behind[0]}" if behind else ""


def on(pod: Doc) -> str:
    """The node of *pod*."""
    return str(pod["spec"].get("nodeName", ""))


def is_ready(pod: Doc) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def restarts(pod: Doc) -> int:
    return sum(each["restartCount"] for each in (pod.get("status") or {}).get("containerStatuses") or [])


async def eventually(missing: Callable[[], Awaitable[str]], *, within_s: float) -> None:
    """Return once nothing is *missing*. Raises: AssertionError with what still is after *within_s*."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            found = await missing()
        except _NO_ANSWER as error:
            found = f"no answer: {error}"
        if not found:
            return
        assert time.monotonic() < deadline, f"after {within_s:.0f} s: {found}"
        await asyncio.sleep(0.5)  # other processes change the state


def _by_pod(write: Write) -> Write:
    """*write* with the pod as its account: all replicas share one ServiceAccount, their tokens name their pods."""
    return msgspec.structs.replace(write, user=write.pod or write.user)
