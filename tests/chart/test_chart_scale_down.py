"""The chart under the real workload controllers: its StatefulSet is scaled, and rolled, while its replicas work.

The controller manager makes and deletes the pods, the process kubelet runs them with the chart's own rights and guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from ring import HashRing
from ringleader.assets import website_crd
from ringleader.testing.client import IndependentClient, RequestFailedError
from ringleader.testing.kubelet import Kubelet, process_kubelet
from ringleader.testing.single_task import single_task
from tests.chart.helm import Helm
from tests.chart.running_pods import images
from tests.chart.websites import CONTROLLER, KEYS, RING, SITES, WEBSITES

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]

CONTROLLERS = WORKLOAD_CONTROLLERS
SYSTEM = "ringleader-system"
OBJECTS = 40
WITHIN_S = 90.0
STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
REPLICA_ACCOUNT = f"system:serviceaccount:{SYSTEM}:websites"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubelet(
    plane: RealPlane,
    admin: IndependentClient,
    helm_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Kubelet]:
    """The chart, installed; its pods run, and every object has its owner."""
    directory = tmp_path_factory.mktemp("kubelet")
    async with single_task(process_kubelet(plane.kubeconfig, directory, images=images())) as kubelet:
        helm = Helm(helm_binary, tmp_path_factory.mktemp("helm"), plane.kubeconfig)
        await admin.create(CRDS, yaml.safe_load(website_crd().read_text()))
        await admin.create(NAMESPACES, {"metadata": {"name": SITES}})
        await eventually(lambda: is_served(admin), kubelet)
        for number in range(OBJECTS):
            body = {"metadata": {"name": f"site-{number}"}, "spec": {"html": "hello"}}
            kind = {"apiVersion": WEBSITES.api_version, "kind": WEBSITES.kind}
            await admin.create(WEBSITES, {**kind, **body}, namespace=SITES)
        values = {
            "sharder": {"leaseDurationSeconds": 5},
            "rings": {KEYS.ring: {**RING, "holdSeconds": 300}},
            "controllers": {"websites": CONTROLLER},
        }
        await helm.install("ringleader", values, namespace=SYSTEM)
        await wait_shared(admin, kubelet, 3)
        yield kubelet


async def is_served(admin: IndependentClient) -> bool:
    try:
        await admin.list_all(WEBSITES)
    except RequestFailedError:
        return False
    return True


async def eventually(is_so: Callable[[], Awaitable[bool]], kubelet: Kubelet) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            while not await is_so():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.2)
    except TimeoutError:
        logs = [f"--- {pod.name}\n{pod.log()[-2000:]}" for pod in kubelet.pods.values()]
        pytest.fail("\n".join(["not so in time", *logs]))


async def owners(admin: IndependentClient) -> dict[str, str]:
    """The shard of each object; empty for none."""
    found = await admin.list_all(WEBSITES, namespace=SITES)
    return {
        each["metadata"]["name"]: each["metadata"].get("labels", {}).get(KEYS.shard, "") for each in found
    }


async def members(admin: IndependentClient) -> dict[str, str]:
    """The member of each shard that has a Lease, held or not."""
    leases = await admin.list_all(LEASES, selector=f"{KEYS.ring_label}={KEYS.ring}")
    return {
        lease["metadata"]["name"]: lease["metadata"].get("annotations", {}).get(KEYS.member, "")
        for lease in leases
    }


async def placed(admin: IndependentClient) -> dict[str, str]:
    """The member of each object."""
    found = await members(admin)
    return {name: found.get(shard, "") for name, shard in (await owners(admin)).items()}


async def wait_shared(admin: IndependentClient, kubelet: Kubelet, replicas: int) -> None:
    """Wait until the StatefulSet has *replicas* ready ones, and every object is at its place."""
    ring = HashRing({f"websites-{number}": 1.0 for number in range(replicas)}, virtual_nodes=1000, eps=0.05)
    sites = [f"site-{number}" for number in range(OBJECTS)]
    wanted = {site: ring.owner(f"example.com_{SITES}_{site}") for site in sites}

    async def is_shared() -> bool:
        status = (await admin.get(STATEFUL_SETS, "websites", namespace=SYSTEM))["status"]
        is_ready = status.get("readyReplicas") == status.get("replicas") == replicas
        return is_ready and await placed(admin) == wanted

    await eventually(is_shared, kubelet)


async def scale(admin: IndependentClient, replicas: int) -> None:
    await admin.merge(STATEFUL_SETS, "websites", {"spec": {"replicas": replicas}}, namespace=SYSTEM)


async def test_a_scale_down_hands_every_object_over_before_the_pod_ends(
    plane: RealPlane, kubelet: Kubelet, admin: IndependentClient
) -> None:
    before = await owners(admin)
    shards = {name for name, member in (await members(admin)).items() if member == "websites-2"}
    leaving = {name for name, owner in before.items() if owner in shards}
    assert leaving
    await scale(admin, 2)
    await wait_shared(admin, kubelet, 2)

    async def is_gone() -> bool:
        return kubelet.named("websites-2") is None

    await eventually(is_gone, kubelet)
    (ended,) = (pod for pod in kubelet.ended if pod.name == "websites-2")
    assert "leaving: done" in ended.log()
    handed_over = {
        write.name
        for write in plane.writes()
        if write.resource == WEBSITES.group_resource
        and write.user == REPLICA_ACCOUNT
        and write.code == 200
        and write.labels_after is not None
        and write.labels_after.get(KEYS.shard, "") not in ("", *shards)
    }
    assert handed_over >= leaving, "the replica itself handed them over: none had no owner"


async def test_a_scale_up_and_a_roll_leave_every_object_with_its_member(
    plane: RealPlane, kubelet: Kubelet, admin: IndependentClient
) -> None:
    await scale(admin, 3)
    await wait_shared(admin, kubelet, 3)
    before, written = await placed(admin), len(plane.writes())
    restarted = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    await admin.merge(STATEFUL_SETS, "websites", {"spec": {"template": restarted}}, namespace=SYSTEM)

    async def is_rolled() -> bool:
        found = await admin.get(STATEFUL_SETS, "websites", namespace=SYSTEM)
        status = found["status"]
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        is_new = status.get("readyReplicas") == 3 and status["currentRevision"] == status["updateRevision"]
        return bool(is_seen and is_new)

    await eventually(is_rolled, kubelet)

    async def is_as_before() -> bool:
        return await placed(admin) == before

    await eventually(is_as_before, kubelet)
    member_of = await members(admin)
    given = {
        (write.name, member_of[shard])
        for write in plane.writes()[written:]
        if write.resource == WEBSITES.group_resource and write.code == 200 and write.labels_after is not None
        if (shard := write.labels_after.get(KEYS.shard, ""))
    }
    assert given <= set(before.items()), "no object was with another member meanwhile"
    rolled = [pod for pod in kubelet.ended if pod.name.startswith("websites-") and "leaving" not in pod.log()]
    assert {pod.name for pod in rolled} == {"websites-0", "websites-1", "websites-2"}
