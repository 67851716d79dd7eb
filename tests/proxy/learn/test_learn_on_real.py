"""Learn mode before a real kube-apiserver: kube-controller-manager as controllers of classes A, C and G."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.real_plane import RealPlane
from ringleader.testing.single_task import single_task
from ringleader.testing.unmodified.rings import WORKLOADS_RING, proxy_command
from ringleader.testing.unmodified.templates import deployment, job, stateful_set
from tests.contract.api import Api, api_from
from tests.proxy.learn.learning import learn, texts, until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SERVICES, ENDPOINTS, QUOTAS, PODS = (
    f"/api/v1/namespaces/default/{plural}" for plural in ("services", "endpoints", "resourcequotas", "pods")
)
LOCK = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    try:
        find_binaries([*SERVERS, "kube-controller-manager"], kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    async with single_task(real_plane(tmp_path_factory.mktemp("plane"), controller_manager=False)) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: RealPlane) -> AsyncIterator[Api]:
    async with api_from(plane.kubeconfig) as api:
        yield api


def controller_manager(*controllers: str) -> list[str]:
    binary = find_binaries(["kube-controller-manager"], kubernetes_recipe())["kube-controller-manager"]
    flags = ("--kubeconfig={kubeconfig}", "--secure-port=0", f"--controllers={','.join(controllers)}")
    return [str(binary), *flags]


async def make_service(admin: Api, name: str) -> None:
    spec: dict[str, Any] = {"selector": {"app": name}, "ports": [{"port": 80}]}
    (await admin.post(SERVICES, {"metadata": {"name": name}, "spec": spec})).check(201)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_lock(admin: Api) -> None:
    """The next run finds no lock of its predecessor, which would cost 15 s."""
    await admin.delete(LOCK)


@pytest.mark.timeout(180)
async def test_of_workloads_the_ring_and_the_command_line_are_those_that_a_fleet_runs_with(
    plane: RealPlane, admin: Api
) -> None:
    """`make unmodified` runs two to six of them: three trees of kinds."""

    async def work() -> None:
        (await admin.post(DEPLOYMENTS, deployment("learned", replicas=2))).check(201)
        (await admin.post(STATEFUL_SETS, stateful_set("learned-set", replicas=1))).check(201)
        (await admin.post(JOBS, job("learned-job", completions=1, parallelism=1, failures=0))).check(201)
        await until(has_pods)

    async def has_pods() -> bool:
        return len((await admin.get(PODS)).check(200).body["items"]) == 4

    manager = controller_manager(*WORKLOADS_RING.controllers)
    report = await learn(plane.kubeconfig, manager, work)
    found, wanted = report["ring"]["spec"], WORKLOADS_RING.manifest()["spec"]
    for field in ("key", "maxInFlight", "maxInFlightPerOwner"):
        assert found[field] == wanted[field]
    assert controlled(found) == controlled(wanted)
    assert sorted(report["roots"]) == sorted(root.group_resource for root in WORKLOADS_RING.roots)
    by_hand = proxy_command(
        WORKLOADS_RING, member="a", kubeconfig=plane.kubeconfig, manager=Path(manager[0]), lease_s=5
    )
    words = report["command"]
    assert words[:3] == ["ringleader", "proxy", "--ring"]
    for flag in ("--leaves", "--locks"):
        values = [each[each.index(flag) + 1].split(",") for each in (words, by_hand)]
        assert sorted(values[0]) == sorted(values[1])
    assert words[words.index("--") + 1 :] == manager


def controlled(spec: dict[str, Any]) -> dict[str, list[str]]:
    """Resources of a ring by the one that controls them."""
    return {
        entry["resource"]: sorted(each["resource"] for each in entry.get("controlledResources", []))
        for entry in spec["resources"]
    }


@pytest.mark.timeout(180)
async def test_endpoints_are_deleted_by_the_name_of_a_service_that_is_not_seen(
    plane: RealPlane, admin: Api
) -> None:
    """As a shard would at its start: those of the Services of all other shards."""
    (await admin.post(ENDPOINTS, {"metadata": {"name": "elsewhere"}})).check(201)

    async def work() -> None:
        async def is_done() -> bool:
            names = (await admin.get(ENDPOINTS)).names
            return "shop" in names and "elsewhere" not in names

        await make_service(admin, "shop")
        await until(is_done)
        await asyncio.sleep(1)  # the look at what was made

    report = await learn(plane.kubeconfig, controller_manager("endpoints-controller"), work)
    assert (report["verdict"], report["roots"], report["companions"]) == (
        "yes, with care",
        ["services"],
        {"endpoints": ["services"]},
    )
    assert report["locks"] == ["kube-controller-manager"]
    (finding,) = texts(report, "C")
    assert "1 were deleted by name" in finding
    assert report["command"][report["command"].index("--companions") + 1] == "endpoints=services"


@pytest.mark.timeout(180)
async def test_endpoint_slices_are_controlled_by_their_service(plane: RealPlane, admin: Api) -> None:
    async def work() -> None:
        async def is_made() -> bool:
            found = await admin.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")
            return any(name.startswith("sliced-") for name in found.names)

        await make_service(admin, "sliced")
        await until(is_made)

    report = await learn(plane.kubeconfig, controller_manager("endpointslice-controller"), work)
    assert (report["verdict"], report["roots"]) == ("yes, with care", ["services"])
    assert report["leaves"] == ["endpointslices.discovery.k8s.io"]
    (finding,) = texts(report, "G")
    assert "nodes, pods" in finding


@pytest.mark.timeout(180)
async def test_quotas_are_computed_from_all_objects(plane: RealPlane, admin: Api) -> None:
    async def work() -> None:
        async def is_counted() -> bool:
            return "used" in (await admin.get(f"{QUOTAS}/all")).body.get("status", {})

        quota = {"metadata": {"name": "all"}, "spec": {"hard": {"pods": "100"}}}
        (await admin.post(QUOTAS, quota)).check(201)
        await until(is_counted)

    report = await learn(plane.kubeconfig, controller_manager("resourcequota-controller"), work)
    assert (report["verdict"], report["classes"], report["ring"]) == ("no", ["G"], None)


@pytest.mark.timeout(180)
async def test_the_job_controller_writes_pods_whose_job_is_gone(plane: RealPlane, admin: Api) -> None:
    """It takes the finalizer away: as a shard would from those of another shard, if it saw them."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "c0ffee", "controller": True}
    tracking = "batch.kubernetes.io/job-tracking"

    async def work() -> None:
        async def is_gone() -> bool:
            return (await admin.get(f"{PODS}/orphan")).status == 404

        metadata = {"name": "orphan", "finalizers": [tracking], "ownerReferences": [owner]}
        spec = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
        (await admin.post(PODS, {"metadata": metadata, "spec": spec})).check(201)
        container = {"name": "main", "image": "none"}
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        job = {"metadata": {"name": "seen"}, "spec": {"template": template}}
        (await admin.post("/apis/batch/v1/namespaces/default/jobs", job)).check(201)
        (await admin.delete(f"{PODS}/orphan")).check(200)
        await until(is_gone)
        await asyncio.sleep(2)  # the job's own pod

    report = await learn(plane.kubeconfig, controller_manager("job-controller"), work)
    assert (report["roots"], report["leaves"]) == (["jobs.batch"], ["pods"])
    (finding,) = texts(report, "B")
    assert "pods whose owner is gone" in finding
    assert report["verdict"].startswith("yes")
