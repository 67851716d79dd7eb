"""An unmodified kube-controller-manager by the chart: installed, rolled, scaled down and removed while it runs Jobs.

Its pods run as the chart makes them: an init container copies the proxy, the proxy runs by its own loader, and the
controller finds the proxy as its API server, with the account that the chart makes. The tests run in order.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from devcluster.real import kubernetes_recipe
from devcluster.real.binaries import find_binaries
from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.access.cluster import load_cluster
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.kubelet import PODS
from tests.chart.helm import Helm
from tests.chart.running_pods import DEPLOYMENTS, STATEFULSETS, Pods, eventually, scrape

pytestmark = [
    pytest.mark.real,
    pytest.mark.alone,
    pytest.mark.fleet,
    pytest.mark.asyncio(loop_scope="module"),
]

CONTROLLERS = WORKLOAD_CONTROLLERS
SYSTEM, WORK = "ringleader-system", "work"
KEYS = RingKeys("jobs")
JOBS = ApiResource("batch", "v1", "jobs", "Job")
SERVICES = ApiResource("", "v1", "services", "Service")
NUMBER, WITHIN_S = 12, 90.0
RING: Doc = {
    "settleSeconds": 1,
    "holdSeconds": 60,
    "key": "Owner",
    "maxInFlight": 10_000,
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WORK}},
    "resources": [{"group": "batch", "resource": "jobs", "controlledResources": [{"resource": "pods"}]}],
}
RULES: list[Doc] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["update"]},
    {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update", "patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]


def controller(**changed: object) -> Doc:
    """The controller of Jobs, as its own manifests would have it; *changed* are its values."""
    return {
        "image": {"repository": "registry.example.com/kube-controller-manager", "tag": "1"},
        "command": ["/kube-controller-manager"],
        "args": ["--kubeconfig={kubeconfig}", "--controllers=job-controller", "--secure-port=0"],
        "unmodified": {"leaves": ["pods"], "locks": ["kube-controller-manager"], "stopWithinSeconds": 10},
        "leaseDurationSeconds": 5,
        "rules": RULES,
        **changed,
    }


def values(**changed: object) -> Doc:
    return {
        "sharder": {"leaseDurationSeconds": 5},
        "rings": {KEYS.ring: RING},
        "controllers": {"jobs": controller(**changed)},
        "fence": {"rings": {KEYS.ring: {"identity": "life"}}},
    }


def here() -> list[str]:
    """The program of the controller's image on this machine."""
    name = "kube-controller-manager"
    return [str(find_binaries([name], kubernetes_recipe())[name])]


async def make_jobs(admin: IndependentClient, stem: str) -> None:
    container = {"name": "main", "image": "registry.example.com/work:1", "command": ["python", "-c", "pass"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    for number in range(NUMBER):
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{stem}-{number}"}}
        await admin.create(JOBS, {**body, "spec": {"template": template}}, namespace=WORK)


async def members(admin: IndependentClient) -> Counter[str]:
    """Jobs of each member."""
    leases = await admin.list_all(LEASES, selector=f"{KEYS.ring_label}={KEYS.ring}")
    names = {each["metadata"]["name"]: each["metadata"]["annotations"][KEYS.member] for each in leases}
    jobs = await admin.list_all(JOBS, namespace=WORK)
    return Counter(names.get(job["metadata"]["labels"].get(KEYS.shard, ""), "") for job in jobs)


async def wait_done(admin: IndependentClient, pods: Pods, *wanted: str) -> None:
    """Every Job has succeeded, and *wanted* share them; none made more than one pod."""

    async def are_done() -> bool:
        jobs = await admin.list_all(JOBS, namespace=WORK)
        done = [job for job in jobs if job.get("status", {}).get("succeeded") == 1]
        return len(done) == len(jobs) and (await members(admin)).keys() == set(wanted)

    await eventually(are_done, within_s=WITHIN_S, told=pods.logs)
    made = await admin.list_all(PODS, namespace=WORK)
    each = Counter(pod["metadata"]["ownerReferences"][0]["name"] for pod in made)
    assert set(each.values()) == {1}
    assert not [job for job in await admin.list_all(JOBS, namespace=WORK) if job["status"].get("failed")]


async def forbidden(plane: RealPlane) -> set[str]:
    """Kinds of requests that the API server answered with 403.

    But for dry runs: the proxy probes the fence by creates, and this account makes no Jobs.
    """
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        text = (await client.request("GET", "/metrics", accept="text/plain")).body.decode()
    return {
        line
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
        and 'code="403"' in line
        and 'dry_run="All"' not in line
    }


async def wait_rolled_out(pods: Pods) -> None:
    await pods.wait_rolled_out(DEPLOYMENTS, "ringleader-sharder", SYSTEM)
    await pods.wait_rolled_out(STATEFULSETS, "jobs", SYSTEM)


@pytest.mark.timeout(240)
async def test_three_replicas_share_the_jobs_and_make_no_pod_too_many(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    await admin.create(NAMESPACES, {"metadata": {"name": WORK}})
    await helm.install("ringleader", values(command=here()), namespace=SYSTEM)
    await wait_rolled_out(pods)
    await make_jobs(admin, "first")
    await wait_done(admin, pods, "jobs-0", "jobs-1", "jobs-2")
    for pod in pods.named("jobs"):
        assert (pod.directory / "volumes/ringleader/lib/ld.so").exists()
        text = await scrape(pod, await admin.get(SERVICES, "jobs", namespace=SYSTEM))
        assert 'ringleader_shard_objects{controller="jobs",resource="jobs.batch"}' in text
        assert not [
            line for line in text.splitlines() if 'code="403"' in line and 'method="POST"' not in line
        ]


@pytest.mark.timeout(240)
async def test_a_roll_and_a_scale_down_lose_no_job(helm: Helm, pods: Pods, admin: IndependentClient) -> None:
    before = await members(admin)
    rolling = asyncio.create_task(pods.restart(STATEFULSETS, "jobs", SYSTEM))
    await make_jobs(admin, "second")
    await rolling
    await wait_done(admin, pods, *before)
    await helm.upgrade("ringleader", values(command=here(), replicas=2), namespace=SYSTEM)
    await make_jobs(admin, "third")
    await wait_rolled_out(pods)
    await wait_done(admin, pods, "jobs-0", "jobs-1")
    logs = [text for name, text in pods.logs().items() if name.startswith("jobs-2")]
    assert ["leaving: done" in text for text in logs].count(True) == 1, "the rolled one did not leave"


async def test_nothing_that_it_does_is_forbidden(plane: RealPlane, pods: Pods) -> None:
    logs = {name: text for name, text in pods.logs().items() if not name.startswith("ringleader")}
    refused = {name: re.findall(r".*forbidden.*", text) for name, text in logs.items()}
    assert not {name: lines for name, lines in refused.items() if lines}
    assert await forbidden(plane) == set()


async def test_the_release_goes_and_its_controllers_with_it(helm: Helm, pods: Pods) -> None:
    await helm.uninstall("ringleader", namespace=SYSTEM)
    await pods.wait_gone(SYSTEM)
