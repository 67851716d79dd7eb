"""Unmodified kube-controller-managers share Deployments on a real kube-apiserver, while one joins and one is killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.errors import NotFound
from kubeio.models import Object
from kubeio.patch import MergePatch
from kubeio.program.yaml_file import read_document
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from ringleader.assets import ring_crd
from tests.proxy.learn.learning import learn

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

KEYS = RingKeys("deployments")
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = ApiResource("apps", "v1", "replicasets", "ReplicaSet")
PODS = ApiResource("", "v1", "pods", "Pod")
NUMBER, PODS_EACH = 12, 3
CONTROLLERS = (
    "--kubeconfig={kubeconfig}",
    "--controllers=deployment-controller,replicaset-controller",
    "--secure-port=0",
    "--kube-api-qps=200",
    "--kube-api-burst=400",
)
RING: dict[str, Any] = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": KEYS.ring},
    "spec": {
        "leaseNamespace": "rings",
        "key": "Owner",
        "maxInFlight": 10_000,
        "resources": [
            {
                "group": "apps",
                "resource": "deployments",
                "controlledResources": [{"group": "apps", "resource": "replicasets"}],
            },
            {"group": "apps", "resource": "replicasets", "controlledResources": [{"resource": "pods"}]},
        ],
    },
}


class Fleet:
    """A sharder, proxies with a kube-controller-manager each, and the administrator."""

    def __init__(self, plane: RealPlane, client: Client, folder: Path) -> None:
        self.plane = plane
        self.client = client
        self._folder = folder
        manager = find_binaries(["kube-controller-manager"], kubernetes_recipe())["kube-controller-manager"]
        self._controller = [str(manager), *CONTROLLERS]
        self._ring = RING
        self._words = ["--ring", KEYS.ring, "--resource", "deployments.apps", "--leaves", "pods"]
        self._words += ["--locks", "kube-controller-manager", "--", *self._controller]
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._pods: dict[str, str] = {}

    async def start(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("w") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=log, stderr=asyncio.subprocess.STDOUT
            )

    async def learn(self) -> None:
        """Use the ring and the command line that learn mode prints."""

        async def work() -> None:
            await self.create("learned", namespace="learning")

            async def all_made() -> bool:
                return len(await self.objects(PODS, namespace="learning")) == PODS_EACH

            await self.wait_for("what is learned is made", all_made)

        await self._make_namespace("learning")
        report = await learn(self.plane.kubeconfig, self._controller, work)
        self._ring, (*program, first), self._words = (
            report["ring"],
            report["command"][:3],
            report["command"][2:],
        )
        assert (program, first) == (["ringleader", "proxy"], "--ring"), report

    async def create_ring(self) -> None:
        await self._make_namespace(self._ring["spec"]["leaseNamespace"])

        async def is_created() -> bool:
            try:
                await self.client.create(CONTROLLER_RINGS, self._ring, type=bytes)
            except NotFound:  # not served yet
                return False
            return True

        await self.wait_for("the ring is created", is_created, within_s=20)

    async def start_sharder(self) -> None:
        common = ("--kubeconfig", str(self.plane.kubeconfig), "--lease-duration", "5s")
        await self.start("sharder", "-m", "sharder", *common, "--lease-namespace", "election")

    async def start_proxy(self, member: str) -> None:
        cluster = ("--kubeconfig", str(self.plane.kubeconfig), "--lease-duration", "5s")
        await self.start(member, "-m", "proxy", "--member", member, *cluster, *self._words)

    def kill(self, name: str) -> None:
        self._processes[name].kill()

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        for name, process in self._processes.items():
            async with asyncio.timeout(60):
                assert await process.wait() in (0, -9), (self._folder / f"{name}.log").read_text()[-2000:]

    async def objects(self, resource: ApiResource, *, namespace: str = "web") -> list[Object]:
        return (await self.client.list_page(resource, namespace=namespace, limit=0)).objects

    async def owners(self) -> Counter[str]:
        """Deployments of each member."""
        labels = [found.meta.labels.get(KEYS.shard, "") for found in await self.objects(DEPLOYMENTS)]
        return Counter(label.rpartition("-")[0] for label in labels)

    async def wait_for(
        self, what: str, holds: Callable[[], Awaitable[bool]], *, within_s: float = 60
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - it happens on a server
                    await asyncio.sleep(0.2)
        except TimeoutError:
            logs = {path.name: path.read_text()[-1500:] for path in self._folder.glob("*.log")}
            raise AssertionError(
                f"not within {within_s:g} s: {what}; {await self.owners()}; {logs}"
            ) from None

    async def create(self, name: str, *, namespace: str = "web") -> None:
        labels = {"app": name}
        spec = {
            "replicas": PODS_EACH,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "web", "image": "web:1"}],
                    "terminationGracePeriodSeconds": 0,
                },
            },
        }
        document = {"metadata": {"name": name}, "spec": spec}
        await self.client.create(DEPLOYMENTS, document, namespace=namespace, type=bytes)

    async def _make_namespace(self, name: str) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)

    async def check(self) -> list[dict[str, Any]]:
        """What `ringleader check` finds wrong with the ring and its replicas; this plane has no guard."""
        command = ("-m", "ringleader", "check", "-o", "json", "--kubeconfig", str(self.plane.kubeconfig))
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=-1)
        output, _ = await process.communicate()
        found = [each for each in json.loads(output)["findings"] if each["level"] in ("error", "warning")]
        return [each for each in found if each["check"] not in ("guard", "flowschema")]

    async def watch_pods(self) -> None:
        """Every pod that ever was, by its uid: an informer of our own sees each creation."""

        def seen(change: Change) -> None:
            if change.new is not None and change.new.controller is not None:
                self._pods[change.new.uid] = change.new.controller.name

        source = Reflector(
            ListerWatcher(self.client, PODS, namespace="web"), clock=SystemClock(), rng=random.Random(1)
        )
        await Informer(source, on_change=seen).run()

    def created(self) -> Counter[str]:
        """Pods that were ever created, by the ReplicaSet that controls them."""
        return Counter(self._pods.values())


@asynccontextmanager
async def open_fleet(folder: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(real_plane(folder / "plane", controller_manager=False))
        client = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(plane.kubeconfig))))
        await client.create(CRDS, read_document("definition", ring_crd()), type=bytes)
        for name in ("election", "web"):
            await client.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)
        fleet = Fleet(plane, client, folder)
        watching = asyncio.create_task(fleet.watch_pods())
        yield fleet
        await fleet.stop()
        watching.cancel()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("configured", ["by hand", "by learn mode"])
async def test_three_of_them_make_no_pod_too_many(tmp_path: Path, configured: str) -> None:
    try:
        find_binaries([*SERVERS, "kube-controller-manager"], kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    async with open_fleet(tmp_path) as fleet:
        if configured == "by learn mode":
            await fleet.learn()
        await fleet.create_ring()
        await fleet.start_sharder()
        for member in ("manager-0", "manager-1"):
            await fleet.start_proxy(member)

        async def all_pods() -> bool:
            return len(await fleet.objects(PODS)) == NUMBER * PODS_EACH

        async def shared_by(*members: str) -> bool:
            return (await fleet.owners()).keys() == set(members)

        for number in range(NUMBER):
            await fleet.create(f"web-{number}")
        await fleet.wait_for("all pods", all_pods)
        await fleet.wait_for("two share", lambda: shared_by("manager-0", "manager-1"))
        await fleet.start_proxy("manager-2")
        await fleet.wait_for("three share", lambda: shared_by("manager-0", "manager-1", "manager-2"))
        fleet.kill("manager-0")
        await fleet.wait_for("two are left", lambda: shared_by("manager-1", "manager-2"))
        await asyncio.sleep(12)  # what arrived has become visible in a restart
        assert set(fleet.created().values()) == {PODS_EACH}
        assert len(fleet.created()) == NUMBER

        scaled = {"spec": {"replicas": PODS_EACH + 1}}  # every one of them is worked on
        for number in range(NUMBER):
            await fleet.client.patch(
                DEPLOYMENTS, f"web-{number}", MergePatch(scaled), namespace="web", type=bytes
            )

        async def all_scaled() -> bool:
            return len(await fleet.objects(PODS)) == NUMBER * (PODS_EACH + 1)

        await fleet.wait_for("one pod more each", all_scaled)
        await asyncio.sleep(3)
        assert set(fleet.created().values()) == {PODS_EACH + 1}
        found = await fleet.check()
        assert [each["check"] for each in found] == ["proxies"] * 2, found
        assert all(
            "is not fenced: there is no validatingadmissionpolicy/" in each["summary"] for each in found
        )
