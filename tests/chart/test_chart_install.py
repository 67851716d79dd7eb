"""The chart's whole life on a real API server: installed by Helm, its pods run as processes under its own accounts.

Every process acts with a token of the ServiceAccount that its pod names, under the real RBAC authorizer;
`tests.chart.pods` states what stands in for the kubelet. The tests are one story and run in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.program.http_server import Reply
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, LEASES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import website_controller, website_crd
from ringleader.dashboard.command import questions_to
from ringleader.dashboard.leader import find_leader
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.kubelet import own_address
from tests.chart.helm import Helm, HelmFailed
from tests.chart.pods import PodProcess, pod_of, start_pod

pytestmark = [
    pytest.mark.real,
    pytest.mark.fleet,
    pytest.mark.asyncio(loop_scope="module"),
]

RELEASE = "ringleader"
SYSTEM = "ringleader-system"
SITES = "sites"
LEASES_OF_RING = "ringleader-websites"
OBJECTS = 30
WITHIN_S = 60
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
STATEFULSETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
PODS = ApiResource("", "v1", "pods", "Pod")
SERVICES = ApiResource("", "v1", "services", "Service")
FLOW_SCHEMAS = ApiResource(
    "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False
)
PRIORITY_LEVELS = ApiResource(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "prioritylevelconfigurations",
    "PriorityLevelConfiguration",
    namespaced=False,
)
CRD_NAME = "controllerrings.ringleader.dev"
KEYS = RingKeys("websites")
SHARDER: Doc = {"leaseDurationSeconds": 5, "logLevel": "debug"}
RING: Doc = {
    "name": KEYS.ring,
    "spec": {
        "settleSeconds": 1,
        "holdSeconds": 30,
        "maxLeaseDurationSeconds": 10,
        "resources": [
            {
                "group": "example.com",
                "resource": "websites",
                "controlledResources": [{"group": "", "resource": "configmaps"}],
            }
        ],
    },
}
CONTROLLER: Doc = {
    "name": "websites",
    "ring": KEYS.ring,
    "image": "registry.example.com/websites:1",
    "target": f"{website_controller()}:websites",
    "leaseDurationSeconds": 5,
    "replicas": 3,
    "rules": [
        {"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "delete"]},
    ],
}


def values(**changed: object) -> Doc:
    return {"sharder": SHARDER, "rings": [RING], "controllers": [CONTROLLER], **changed}


@dataclass
class Pods:
    """Pods that run, by name; what a kubelet and two workload controllers would do with them."""

    plane: RealPlane
    admin: IndependentClient
    directory: Path
    running: dict[str, PodProcess] = field(default_factory=dict)
    ended: list[PodProcess] = field(default_factory=list)
    rng: random.Random = field(default_factory=random.Random)

    async def start(self, workload: Doc, name: str) -> PodProcess:
        """Start the pod *name* from the template that the API server holds, with a token of that very pod."""
        pod = pod_of(workload, name)
        namespace = pod["metadata"]["namespace"]
        pod = await self.admin.create(PODS, pod, namespace=namespace)
        kubeconfig = await self.plane.service_account_kubeconfig(
            namespace, pod["spec"]["serviceAccountName"], pod=name
        )
        address = own_address(self.rng)
        started = await start_pod(pod, kubeconfig=kubeconfig, directory=self.directory, address=address)
        self.running[name] = started
        return started

    async def start_all(self, workload: Doc, names: list[str]) -> None:
        await asyncio.gather(*(self.start(workload, name) for name in names))
        await asyncio.gather(*(self.wait_ready(name) for name in names))

    async def wait_ready(self, name: str) -> None:
        pod = self.running[name]

        async def is_ready() -> bool:
            assert pod.child.is_running, pod.log()
            return await pod.probe("readinessProbe") == 200 and await pod.probe("livenessProbe") == 200

        await eventually(is_ready, within_s=30, told=pod.log)

    async def stop(self, name: str) -> int:
        """End the pod *name* in good order, and delete it; its exit code."""
        code = await self.running[name].stop()
        await self._delete(name)
        return code

    async def kill(self, name: str) -> None:
        """End the pod *name* as a lost node does."""
        await self.running[name].child.end(grace_s=0)
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        pod = self.running.pop(name)
        self.ended.append(pod)
        await self.admin.delete(PODS, name, namespace=pod.pod["metadata"]["namespace"])

    async def restart_ended(self) -> None:
        """A container that ended is started again, whatever its exit code (restartPolicy Always)."""
        for name, pod in list(self.running.items()):
            if not pod.child.is_running:
                self.ended.append(pod)
                kubeconfig = pod.kubeconfig  # its pod is the same
                self.running[name] = await start_pod(
                    pod.pod, kubeconfig=kubeconfig, directory=self.directory, address=pod.address
                )

    async def roll(self, workload: Doc, names: list[str]) -> None:
        """Replace pod after pod, each when the one before is ready."""
        for name in names:
            assert await self.stop(name) == 0
            await self.start(workload, name)
            await self.wait_ready(name)

    def logs(self) -> dict[str, str]:
        return {pod.child.log.name: pod.log() for pod in [*self.running.values(), *self.ended]}


async def eventually(
    is_so: Callable[[], Awaitable[bool]], *, within_s: float, told: Callable[[], object] = lambda: ""
) -> None:
    """Return once *is_so*; fail with what *told* says after *within_s*."""
    try:
        async with asyncio.timeout(within_s):
            while not await is_so():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"not so within {within_s} s: {told()}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pods(
    plane: RealPlane, admin: IndependentClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pods]:
    pods = Pods(plane, admin, tmp_path_factory.mktemp("pods"))
    yield pods
    for name in list(pods.running):
        await pods.running.pop(name).child.end(grace_s=0)


async def test_a_ring_in_the_first_install_is_refused_before_anything_is_created(
    helm: Helm, admin: IndependentClient
) -> None:
    with pytest.raises(HelmFailed, match=r"does not serve ControllerRing yet.*install without rings first"):
        await helm.install(RELEASE, values(), namespace=SYSTEM)
    with pytest.raises(RequestFailedError) as missing:
        await admin.get(CRDS, CRD_NAME)
    assert missing.value.status == 404


async def test_the_first_install_brings_the_crd_and_the_sharder(helm: Helm, admin: IndependentClient) -> None:
    notes = await helm.install(RELEASE, {"sharder": SHARDER}, namespace=SYSTEM)
    assert "There is no ring yet" in notes
    await admin.get(CRDS, CRD_NAME)
    await admin.get(DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM)


async def test_an_upgrade_adds_the_ring_and_its_replicas(helm: Helm, admin: IndependentClient) -> None:
    await admin.create(CRDS, yaml.safe_load(website_crd().read_text()))
    await admin.create(
        ApiResource("", "v1", "namespaces", "Namespace", namespaced=False), {"metadata": {"name": SITES}}
    )
    await eventually(lambda: is_served(admin, WEBSITES), within_s=10)
    for number in range(OBJECTS):
        await admin.create(WEBSITES, website(number), namespace=SITES)
    notes = await helm.upgrade(RELEASE, values(), namespace=SYSTEM)
    assert "ringleader status websites" in notes
    ring = await admin.get(CONTROLLER_RINGS, KEYS.ring)
    assert ring["spec"]["leaseNamespace"] == LEASES_OF_RING


async def test_the_ring_converges_under_the_charts_own_rights(pods: Pods, admin: IndependentClient) -> None:
    deployment = await admin.get(DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM)
    stateful = await admin.get(STATEFULSETS, "websites", namespace=SYSTEM)
    assert (deployment["spec"]["replicas"], stateful["spec"]["replicas"]) == (2, 3)
    await pods.start_all(deployment, ["ringleader-sharder-a", "ringleader-sharder-b"])
    await pods.start_all(stateful, MEMBERS)
    await wait_converged(admin, pods)
    owners = await owners_by_object(admin)
    assert {member_of(owner) for owner in owners.values()} == set(MEMBERS)


async def test_leases_and_label_patches_have_priority_levels_of_their_own(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """Headers of answers name the FlowSchema and the level, by uid. A replica's own lists have none of ours."""
    uids = {
        (resource.kind, name): (await admin.get(resource, f"{SYSTEM}-{RELEASE}-{name}"))["metadata"]["uid"]
        for resource in (FLOW_SCHEMAS, PRIORITY_LEVELS)
        for name in ("leases", "labels")
    }
    for account_of, lists in (("ringleader-sharder-a", "labels"), ("websites-0", "")):
        pod = pods.running[account_of].pod
        name, namespace = pod["spec"]["serviceAccountName"], pod["metadata"]["namespace"]
        kubeconfig = await plane.service_account_kubeconfig(namespace, name)
        async with Client(load_cluster(kubeconfig=str(kubeconfig))) as client:
            leases = await client.request("GET", LEASES.path(namespace=LEASES_OF_RING))
            websites = await client.request("GET", WEBSITES.path())
        for answer, level in ((leases, "leases"), (websites, lists)):
            found = (
                answer.headers["x-kubernetes-pf-flowschema-uid"],
                answer.headers["x-kubernetes-pf-prioritylevel-uid"],
            )
            ours = uids.get(("FlowSchema", level)), uids.get(("PriorityLevelConfiguration", level))
            assert found == ours if level else not set(found) & set(uids.values())


async def test_no_process_was_ever_refused_for_its_rights(pods: Pods, admin: IndependentClient) -> None:
    await refused_nothing(pods, admin)


async def test_the_dashboard_reads_the_leader_and_objects_under_the_charts_own_rights(
    helm: Helm, plane: RealPlane, pods: Pods
) -> None:
    """What a pod of the dashboard does, with a token of its account."""
    await helm.upgrade(RELEASE, values(dashboard={"enabled": True}), namespace=SYSTEM)
    account = await plane.service_account_kubeconfig(SYSTEM, "ringleader-dashboard")
    async with Client(load_cluster(kubeconfig=str(account))) as client:
        leader = await find_leader(client, only=SYSTEM, timeout_s=10)
        asked = questions_to(client, timeout_s=10).pages()
        found = await asked["/where"]([KEYS.ring, "websites.example.com", SITES, "site-0"])
        missing = await asked["/where"]([KEYS.ring, "websites.example.com", SITES, "nothing"])
        wider = await asked["/whatif"]([KEYS.ring, "4"])
    assert (leader.namespace, leader.port) == (SYSTEM, 8081)
    assert isinstance(found, Reply)
    assert isinstance(wider, Reply)
    assert isinstance(missing, Reply)
    assert (missing.status, b"does not exist in namespace sites; name another" in missing.body) == (404, True)
    assert b'"isPlaced":true' in found.body, found.body
    assert b'"joined":["websites-3"]' in wider.body, wider.body
    token = yaml.safe_load(account.read_text())["users"][0]["user"]["token"]
    address = pods.running[leader.name].address
    for bearer, status in (("forged", 401), (token, 200)):
        assert await forwarded(address, "/debug/rings", bearer) == status


async def forwarded(address: str, path: str, token: str) -> int:
    """Status for a request that is not of the pod's own machine, as its header says."""
    reader, writer = await asyncio.open_connection(address, 8081)
    head = f"Host: x\r\nX-Forwarded-For: 10.0.0.7\r\nAuthorization: Bearer {token}\r\nConnection: close"
    writer.write(f"HEAD {path} HTTP/1.1\r\n{head}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return int(answer.split()[1])


async def test_a_replica_that_joins_and_dies_moves_objects_under_the_guard(
    pods: Pods, admin: IndependentClient
) -> None:
    """Handoffs to it, a take-over after it; every process acts with a token of its own pod."""
    stateful = await admin.get(STATEFULSETS, "websites", namespace=SYSTEM)
    await pods.start_all(stateful, [JOINER])
    await wait_converged(admin, pods, members={*MEMBERS, JOINER})
    await pods.kill(JOINER)
    await wait_converged(admin, pods)
    await refused_nothing(pods, admin)


async def test_a_child_under_another_name_comes_back_under_the_guard(
    pods: Pods, admin: IndependentClient
) -> None:
    """Protocol 5.8: the owner of the parent asks, the other one passes it on."""
    name, owner = next(
        (name, owner)
        for (kind, name), owner in (await owners_by_object(admin)).items()
        if kind == "configmaps"
    )
    other = next(o for o in (await owners_by_object(admin)).values() if o != owner)
    sharder = pods.running["ringleader-sharder-a"].kubeconfig
    async with IndependentClient(sharder) as client:
        await client.merge(CONFIGMAPS, name, {"metadata": {"labels": {KEYS.shard: other}}}, namespace=SITES)

    async def is_back() -> bool:
        return (await owners_by_object(admin))["configmaps", name] == owner

    await eventually(is_back, within_s=WITHIN_S, told=pods.logs)
    await refused_nothing(pods, admin)


async def test_labels_and_leases_are_the_fleets_own(admin: IndependentClient) -> None:
    """The administrator too is refused, while the fleet of the same chart works."""
    forged = {"metadata": {"labels": {KEYS.shard: "forged"}}}
    with pytest.raises(RequestFailedError, match="are written by the sharder and the replicas"):
        await admin.merge(WEBSITES, "site-0", forged, namespace=SITES)
    (lease, *_) = await admin.list_all(LEASES, namespace=LEASES_OF_RING)
    edited = {"spec": {"leaseDurationSeconds": 1}}
    with pytest.raises(RequestFailedError, match="Leases of the ring websites are written by"):
        await admin.merge(LEASES, lease["metadata"]["name"], edited, namespace=LEASES_OF_RING)


async def test_a_rolling_upgrade_leaves_every_object_with_its_member(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    before = await owners_by_object(admin)
    crd_uid = (await admin.get(CRDS, CRD_NAME))["metadata"]["uid"]
    changed = {**CONTROLLER, "extraArgs": ["--workers=2"]}
    await helm.upgrade(
        RELEASE,
        values(controllers=[changed], sharder={**SHARDER, "leaseDurationSeconds": 4}),
        namespace=SYSTEM,
    )
    assert (await admin.get(CRDS, CRD_NAME))["metadata"]["uid"] == crd_uid
    deployment = await admin.get(DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM)
    stateful = await admin.get(STATEFULSETS, "websites", namespace=SYSTEM)
    assert "--workers=2" in stateful["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--lease-duration=4s" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    await pods.roll(deployment, ["ringleader-sharder-a", "ringleader-sharder-b"])
    await pods.roll(stateful, MEMBERS[::-1])
    for number in range(OBJECTS):
        change = {"spec": {"html": f"changed {number}"}}
        await admin.merge(WEBSITES, f"site-{number}", change, namespace=SITES)
    await wait_converged(admin, pods)
    after = await owners_by_object(admin)
    assert {key: member_of(owner) for key, owner in after.items()} == {
        key: member_of(owner) for key, owner in before.items()
    }
    await refused_nothing(pods, admin)


async def test_a_ring_that_is_deleted_first_lets_go_of_every_object(
    pods: Pods, admin: IndependentClient
) -> None:
    """The order of docs/operate.md: the ring, while the sharder runs; then the release.

    Replicas that end because their ring ends are started again, and must not keep it by a new Lease.
    """

    rolled = len(pods.ended)

    async def is_ring_gone() -> bool:
        await pods.restart_ended()
        return await is_gone(admin, CONTROLLER_RINGS, KEYS.ring)

    await admin.delete(CONTROLLER_RINGS, KEYS.ring)
    await eventually(is_ring_gone, within_s=WITHIN_S, told=pods.logs)
    for resource in (WEBSITES, CONFIGMAPS):
        assert not await admin.list_all(resource, namespace=SITES, selector=KEYS.shard)
    lives = [*pods.ended[rolled:], *(pods.running[member] for member in MEMBERS)]
    codes = [(pod.name, await pod.child.wait()) for pod in lives]
    assert {name for name, code in codes if code == 0} == set(MEMBERS), codes
    assert {code for _, code in codes} <= {0, 2}, codes
    await refused_nothing(pods, admin, scraped="sharder")
    for name in [name for name in pods.running if "sharder" in name]:
        assert await pods.stop(name) == 0


async def test_uninstall_leaves_the_crd_and_the_objects(helm: Helm, admin: IndependentClient) -> None:
    await helm.uninstall(RELEASE, namespace=SYSTEM)
    await eventually(lambda: is_gone(admin, DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM), within_s=20)
    await admin.get(CRDS, CRD_NAME)
    objects = await owners_by_object(admin)
    assert len(objects) == 2 * OBJECTS
    assert set(objects.values()) == {""}


async def test_a_ring_outlives_its_release_and_comes_back_to_the_next_one(
    helm: Helm, admin: IndependentClient
) -> None:
    """The CRD was kept, so the ring can stand in the first install; a kept ring is adopted by the same release."""
    for _ in range(2):
        await helm.install(RELEASE, values(), namespace=SYSTEM)
        await helm.uninstall(RELEASE, namespace=SYSTEM)
        ring = await admin.get(CONTROLLER_RINGS, KEYS.ring)
        assert "deletionTimestamp" not in ring["metadata"]


async def test_a_ring_that_was_removed_after_its_sharder_goes_when_the_release_returns(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    """Helm deletes the sharder first; the ring's finalizer then holds it until a sharder runs again."""
    removable = values(rings=[{**RING, "keep": False}], controllers=[])

    async def is_held() -> bool:
        return bool((await admin.get(CONTROLLER_RINGS, KEYS.ring))["metadata"].get("finalizers"))

    async def is_finished() -> bool:
        return await is_gone(admin, CONTROLLER_RINGS, KEYS.ring)

    for life, is_reached in (("ringleader-sharder-c", is_held), ("ringleader-sharder-d", is_finished)):
        await helm.install(RELEASE, removable, namespace=SYSTEM)
        deployment = await admin.get(DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM)
        await pods.start_all(deployment, [life])
        await eventually(is_reached, within_s=WITHIN_S, told=pods.logs)
        assert await pods.stop(life) == 0
        await helm.uninstall(RELEASE, namespace=SYSTEM)
        if is_reached is is_held:
            assert (await admin.get(CONTROLLER_RINGS, KEYS.ring))["metadata"]["deletionTimestamp"]


async def test_without_keep_the_ring_and_the_crd_go_with_the_release(
    helm: Helm, admin: IndependentClient
) -> None:
    gone = values(rings=[{**RING, "keep": False}], crds={"keep": False})
    await helm.install(RELEASE, gone, namespace=SYSTEM)
    await helm.uninstall(RELEASE, namespace=SYSTEM)
    await eventually(lambda: is_gone(admin, CRDS, CRD_NAME), within_s=30)


MEMBERS = ["websites-0", "websites-1", "websites-2"]
JOINER = "websites-3"


def website(number: int) -> Doc:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": f"site-{number}"},
        "spec": {"html": f"<h1>{number}</h1>"},
    }


def member_of(shard: str) -> str:
    """The member that the life *shard* fills: without its eight random digits."""
    return shard.rpartition("-")[0]


async def owners_by_object(admin: IndependentClient) -> dict[tuple[str, str], str]:
    """The owner of every Website and of every ConfigMap made for one; empty if it has none."""
    owners = {}
    for resource in (WEBSITES, CONFIGMAPS):
        for obj in await admin.list_all(resource, namespace=SITES):
            meta = obj["metadata"]
            if resource is WEBSITES or meta.get("ownerReferences"):
                owners[resource.plural, meta["name"]] = meta.get("labels", {}).get(KEYS.shard, "")
    return owners


async def is_converged(
    admin: IndependentClient, seen: list[object] | None = None, members: Set[str] = frozenset()
) -> bool:
    """Every Website reconciled in its newest version, everything owned by *members* that hold Leases, and balanced.

    *seen* gets what was looked at, for messages.
    """
    members = members or set(MEMBERS)
    sites = await admin.list_all(WEBSITES, namespace=SITES)
    held = {
        lease["metadata"]["name"]
        for lease in await admin.list_all(LEASES, namespace=LEASES_OF_RING)
        if lease["spec"].get("holderIdentity") == lease["metadata"]["name"]
    }
    owners = await owners_by_object(admin)
    status = (await admin.get(CONTROLLER_RINGS, KEYS.ring)).get("status", {})
    if seen is not None:
        seen[:] = [held, owners, [site.get("status") for site in sites], status]
    return (
        len(owners) == 2 * OBJECTS
        and set(owners.values()) <= held
        and {member_of(owner) for owner in owners.values()} == members
        and all(is_ready(site) for site in sites)
        and condition(status, "Ready") == condition(status, "Balanced") == "True"
        and status["availableShards"] == len(members)
        and status["unassigned"] == status["inFlight"] == 0
    )


async def wait_converged(admin: IndependentClient, pods: Pods, members: Set[str] = frozenset()) -> None:
    seen: list[object] = []
    await eventually(
        lambda: is_converged(admin, seen, members), within_s=WITHIN_S, told=lambda: (seen, pods.logs())
    )


def is_ready(site: Doc) -> bool:
    status = site.get("status", {})
    return (
        condition(status, "Ready") == "True"
        and status["observedGeneration"] == site["metadata"]["generation"]
    )


def condition(status: dict[str, Any], kind: str) -> str:
    return next((str(c["status"]) for c in status.get("conditions", []) if c["type"] == kind), "")


async def refused_nothing(pods: Pods, admin: IndependentClient, *, scraped: str = "") -> None:
    """No 403 in any log, nor in the metrics that the chart's Services lead to; and requests were counted at all."""
    for name, log in pods.logs().items():
        assert "forbidden" not in log.lower(), f"{name}: {log}"
        assert "403" not in [word.strip('",:}') for word in log.split()], f"{name}: {log}"
    for pod in [pod for name, pod in pods.running.items() if scraped in name]:
        kind = "ringleader-sharder-metrics" if "sharder" in pod.name else "websites"
        metrics = await pod.metrics(await admin.get(SERVICES, kind, namespace=SYSTEM))
        codes = {
            line.split('code="')[1][:3]
            for line in metrics.splitlines()
            if 'rest_client_requests_total{code="' in line
        }
        assert "200" in codes
        assert not codes & {"401", "403"}, f"{pod.name}: {codes}"
    fleets = [write for write in pods.plane.writes() if write.user.startswith("system:serviceaccount:")]
    refused = [write for write in fleets if write.code in (401, 403)]
    assert fleets
    assert not refused


async def is_served(admin: IndependentClient, resource: ApiResource) -> bool:
    try:
        await admin.list_all(resource)
    except RequestFailedError:
        return False
    return True


async def is_gone(admin: IndependentClient, resource: ApiResource, name: str, *, namespace: str = "") -> bool:
    try:
        await admin.get(resource, name, namespace=namespace)
    except RequestFailedError as error:
        return error.status == 404
    return False
