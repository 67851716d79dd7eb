"""Unmodified kube-controller-managers share Deployments on a real kube-apiserver, while one joins and one is killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries
from kubeio.clock import SystemClock
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change
from tests.proxy.fleet import NAMESPACE, beside, open_fleet

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
PODS = ApiResource("", "v1", "pods", "Pod")
SERVICES = ApiResource("", "v1", "services", "Service")
ENDPOINTS = ApiResource("", "v1", "endpoints", "Endpoints")
NUMBER, PODS_EACH = 12, 3
RING = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "deployments"},
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


FLAGS = ("--resource", "deployments.apps", "--leaves", "pods", "--locks", "kube-controller-manager")


def manager(program: Path, controllers: str = "deployment-controller,replicaset-controller") -> list[str]:
    return [
        str(program),
        "--kubeconfig={kubeconfig}",
        f"--controllers={controllers}",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"containers": [{"name": "web", "image": "web:1"}], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": PODS_EACH, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


class Pods:
    """Every pod that ever was, with the ReplicaSet that controls it: an informer of our own sees each creation."""

    def __init__(self) -> None:
        self._controllers: dict[str, str] = {}

    async def watch(self, client: Client) -> None:
        source = Reflector(
            ListerWatcher(client, PODS, namespace=NAMESPACE), clock=SystemClock(), rng=random.Random(1)
        )
        await Informer(source, on_change=self._seen).run()

    def created(self) -> Counter[str]:
        return Counter(self._controllers.values())

    def _seen(self, change: Change) -> None:
        if change.new is not None and change.new.controller is not None:
            self._controllers[change.new.uid] = change.new.controller.name


@pytest.fixture
def program() -> Path:
    """kube-controller-manager."""
    try:
        return find_binaries([*SERVERS, "kube-controller-manager"], kubernetes_recipe())[
            "kube-controller-manager"
        ]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.timeout(300)
async def test_three_of_them_make_no_pod_too_many(program: Path, tmp_path: Path) -> None:
    pods, command = Pods(), manager(program)
    async with open_fleet(RING, tmp_path) as fleet, beside(pods.watch(fleet.client)):
        await fleet.start_sharder()
        for member in ("manager-0", "manager-1"):
            await fleet.start_proxy(member, FLAGS, command)

        async def are(number: int) -> bool:
            return len(await fleet.objects(PODS)) == number

        for number in range(NUMBER):
            await fleet.client.create(
                DEPLOYMENTS, deployment(f"web-{number}"), namespace=NAMESPACE, type=bytes
            )
        await fleet.wait_for("all pods", lambda: are(NUMBER * PODS_EACH))
        await fleet.wait_shared(DEPLOYMENTS, "manager-0", "manager-1")
        await fleet.start_proxy("manager-2", FLAGS, command)
        await fleet.wait_shared(DEPLOYMENTS, "manager-0", "manager-1", "manager-2")
        fleet.kill("manager-0")
        await fleet.wait_shared(DEPLOYMENTS, "manager-1", "manager-2")
        await asyncio.sleep(12)  # what arrived has become visible in a restart
        assert set(pods.created().values()) == {PODS_EACH}
        assert len(pods.created()) == NUMBER

        scaled = MergePatch({"spec": {"replicas": PODS_EACH + 1}})  # every one of them is worked on
        for number in range(NUMBER):
            await fleet.client.patch(DEPLOYMENTS, f"web-{number}", scaled, namespace=NAMESPACE, type=bytes)
        await fleet.wait_for("one pod more each", lambda: are(NUMBER * (PODS_EACH + 1)))
        await asyncio.sleep(3)
        assert set(pods.created().values()) == {PODS_EACH + 1}


@pytest.mark.timeout(300)
async def test_the_endpoints_controller_deletes_nothing_of_another_shard(
    program: Path, tmp_path: Path
) -> None:
    """At each start it lists all Endpoints, and deletes by name those whose Service it does not see."""
    command = manager(program, "endpoints-controller")
    flags = ("--companions", "endpoints=services", "--locks", "kube-controller-manager")
    spec = {"leaseNamespace": "rings", "maxInFlight": 10_000, "resources": [{"resource": "services"}]}
    names = {f"web-{number}" for number in range(NUMBER)}
    uids: dict[str, set[str]] = {}
    async with open_fleet(RING | {"metadata": {"name": "services"}, "spec": spec}, tmp_path) as fleet:

        async def have_endpoints() -> bool:
            for found in await fleet.objects(ENDPOINTS):
                uids.setdefault(found.meta.name, set()).add(found.meta.uid)
            return uids.keys() == names

        for name in sorted(names):
            body = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}
            await fleet.client.create(SERVICES, body, namespace=NAMESPACE, type=bytes)
        await fleet.start_sharder()
        for member in ("manager-0", "manager-1"):
            await fleet.start_proxy(member, flags, command)
        await fleet.wait_for("Endpoints of all Services", have_endpoints)
        await fleet.start_proxy("manager-2", flags, command)
        await fleet.wait_shared(SERVICES, "manager-0", "manager-1", "manager-2")
        fleet.kill("manager-0")
        await fleet.wait_shared(SERVICES, "manager-1", "manager-2")
        await asyncio.sleep(12)  # each has begun anew
        assert await have_endpoints()
        assert {len(each) for each in uids.values()} == {1}

        await fleet.client.delete(SERVICES, "web-0", namespace=NAMESPACE)

        async def is_cleaned_up() -> bool:
            return "web-0" not in {found.meta.name for found in await fleet.objects(ENDPOINTS)}

        await fleet.wait_for("Endpoints go with their Service", is_cleaned_up)
