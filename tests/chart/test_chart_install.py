"""The chart's whole life on a real API server: installed by Helm, its pods run as processes under its own accounts.

Every process acts with a token of its pod, under the real RBAC authorizer; the real workload controllers make the pods
and `tests.chart.running_pods` runs them. The tests depend on each other and run in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
import yaml

from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.access.cluster import load_cluster
from kubeio.program.http_server import Reply
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import website_crd
from ringleader.dashboard.command import questions_to
from ringleader.dashboard.leader import find_leader
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.kubelet import PODS
from sharder.schema import SCHEMA, packaged_schema
from tests.chart.helm import Helm
from tests.chart.running_pods import DEPLOYMENTS, STATEFULSETS, Pods, eventually, scrape
from tests.chart.websites import (
    CONFIGMAPS,
    CONTROLLER,
    KEYS,
    LEASES_OF_RING,
    MEMBERS,
    OBJECTS,
    RING,
    SITES,
    WEBSITES,
    WITHIN_S,
    is_gone,
    is_served,
    member_of,
    owners_by_object,
    wait_converged,
    website,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.fleet,
    pytest.mark.asyncio(loop_scope="module"),
]

CONTROLLERS = WORKLOAD_CONTROLLERS
RELEASE = "ringleader"
SYSTEM = "ringleader-system"
JOINER = "websites-3"
CHECK = "ringleader-check"
SERVICES = ApiResource("", "v1", "services", "Service")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
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
SHARDER: Doc = {"leaseDurationSeconds": 5, "logLevel": "debug"}


def values(**changed: object) -> Doc:
    return {
        "sharder": SHARDER,
        "rings": {KEYS.ring: RING},
        "controllers": {"websites": CONTROLLER},
        **changed,
    }


async def test_one_install_brings_the_crd_the_ring_and_its_replicas(
    helm: Helm, admin: IndependentClient
) -> None:
    """Nothing of ours is there before: Helm creates what lies in `crds/`, waits for it, and goes on."""
    assert await is_gone(admin, CRDS, CRD_NAME)
    await admin.create(CRDS, yaml.safe_load(website_crd().read_text()))
    await admin.create(NAMESPACES, {"metadata": {"name": SITES}})
    await eventually(lambda: is_served(admin, WEBSITES), within_s=30)
    for number in range(OBJECTS):
        await admin.create(WEBSITES, website(number), namespace=SITES)
    notes = await helm.install(RELEASE, values(), namespace=SYSTEM)
    assert notes.rstrip().endswith("NOTES:\nNext: ringleader status websites")
    ring = await admin.get(CONTROLLER_RINGS, KEYS.ring)
    assert ring["spec"]["leaseNamespace"] == LEASES_OF_RING


async def test_the_ring_converges_under_the_charts_own_rights(pods: Pods, admin: IndependentClient) -> None:
    await wait_rolled_out(pods)
    assert len(pods.named("ringleader-sharder")) == 2
    assert [pod.name for pod in pods.named("websites")] == MEMBERS
    await wait_converged(admin, pods)
    owners = await owners_by_object(admin)
    assert {member_of(owner) for owner in owners.values()} == set(MEMBERS)


async def wait_rolled_out(pods: Pods) -> None:
    await pods.wait_rolled_out(DEPLOYMENTS, "ringleader-sharder", SYSTEM)
    await pods.wait_rolled_out(STATEFULSETS, "websites", SYSTEM)


async def test_leases_and_label_patches_have_priority_levels_of_their_own(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """Headers of answers name the FlowSchema and the level, by uid. A replica's own lists have none of ours."""
    uids = {
        (resource.kind, name): (await admin.get(resource, f"{SYSTEM}-{RELEASE}-{name}"))["metadata"]["uid"]
        for resource in (FLOW_SCHEMAS, PRIORITY_LEVELS)
        for name in ("leases", "labels")
    }
    for account_of, lists in (("ringleader-sharder", "labels"), ("websites", "")):
        account = pods.named(account_of)[0].doc["spec"]["serviceAccountName"]
        kubeconfig = await plane.service_account_kubeconfig(SYSTEM, account)
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


async def test_no_process_was_ever_refused_for_its_rights(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    await refused_nothing(plane, pods, admin)


async def test_helm_test_runs_a_check_under_the_charts_own_rights(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    """The pod of the release's test, its answer, and nothing of it afterwards."""
    assert "Phase:          Succeeded" in await helm.test(RELEASE, namespace=SYSTEM)
    await eventually(lambda: is_ended(pods), within_s=WITHIN_S, told=pods.logs)
    (log,) = (log for name, log in pods.logs().items() if name.startswith(CHECK))
    assert "nothing is wrong: 21 checks of 1 ring" in log
    assert "not checked" not in log
    assert await is_gone(admin, PODS, CHECK, namespace=SYSTEM)
    assert await is_gone(admin, ROLES, f"{SYSTEM}-{CHECK}")


async def is_ended(pods: Pods) -> bool:
    """Whether the pod of the release's test was deleted."""
    return not pods.named(CHECK)


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
    address = pods.named(leader.name)[0].address
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
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """Handoffs to it, a take-over after it; every process acts with a token of its own pod."""
    await admin.merge(STATEFULSETS, "websites", {"spec": {"replicas": 4}}, namespace=SYSTEM)
    await wait_rolled_out(pods)
    await wait_converged(admin, pods, members={*MEMBERS, JOINER})
    (joiner,) = pods.named(JOINER)
    (container,) = joiner.containers
    assert container.child is not None
    os.kill(
        container.child.pid, signal.SIGSTOP
    )  # as on a lost node: it neither leaves nor releases its Lease
    await admin.merge(STATEFULSETS, "websites", {"spec": {"replicas": 3}}, namespace=SYSTEM)
    path = PODS.path(namespace=SYSTEM, name=JOINER)
    await admin.request("DELETE", path, body={"gracePeriodSeconds": 0})
    await wait_converged(admin, pods)
    await refused_nothing(plane, pods, admin)


async def test_a_child_under_another_name_comes_back_under_the_guard(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """Protocol 5.8: the owner of the parent asks, the other one passes it on."""
    name, owner = next(
        (name, owner)
        for (kind, name), owner in (await owners_by_object(admin)).items()
        if kind == "configmaps"
    )
    other = next(o for o in (await owners_by_object(admin)).values() if o != owner)
    sharder = pods.named("ringleader-sharder")[0].directory / "kubeconfig"
    async with IndependentClient(sharder) as client:
        await client.merge(CONFIGMAPS, name, {"metadata": {"labels": {KEYS.shard: other}}}, namespace=SITES)

    async def is_back() -> bool:
        return (await owners_by_object(admin))["configmaps", name] == owner

    await eventually(is_back, within_s=WITHIN_S, told=pods.logs)
    await refused_nothing(plane, pods, admin)


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
    plane: RealPlane, helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    before = await owners_by_object(admin)
    changed = {**CONTROLLER, "extraArgs": ["--workers=2"]}
    await helm.upgrade(
        RELEASE,
        values(controllers={"websites": changed}, sharder={**SHARDER, "leaseDurationSeconds": 4}),
        namespace=SYSTEM,
    )
    await wait_rolled_out(pods)
    for name, argument in (("ringleader-sharder", "--lease-duration=4s"), ("websites", "--workers=2")):
        for pod in pods.named(name):
            assert argument in pod.doc["spec"]["containers"][0]["args"]
    for number in range(OBJECTS):
        change = {"spec": {"html": f"changed {number}"}}
        await admin.merge(WEBSITES, f"site-{number}", change, namespace=SITES)
    await wait_converged(admin, pods)
    after = await owners_by_object(admin)
    assert {key: member_of(owner) for key, owner in after.items()} == {
        key: member_of(owner) for key, owner in before.items()
    }
    await refused_nothing(plane, pods, admin)


async def test_the_next_leader_upgrades_an_older_crd_and_an_older_leader_leaves_a_newer_one(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """Helm does not touch what lies in `crds/`; a sharder looks at it once, when it begins to lead."""
    await edit_crd(admin, "0", lambda fields: fields.pop("drainPolicy"))
    await pods.restart(DEPLOYMENTS, "ringleader-sharder", SYSTEM)

    async def is_upgraded() -> bool:
        return "drainPolicy" in fields_of(await admin.get(CRDS, CRD_NAME))

    await eventually(is_upgraded, within_s=30, told=pods.logs)
    newer = await edit_crd(admin, "99", lambda fields: fields.update(later={"type": "string"}))
    await pods.restart(DEPLOYMENTS, "ringleader-sharder", SYSTEM)
    await wait_converged(admin, pods)
    assert (await admin.get(CRDS, CRD_NAME))["spec"] == newer["spec"]
    await edit_crd(admin, str(packaged_schema()), lambda fields: fields.pop("later"))
    await refused_nothing(plane, pods, admin)


async def test_uninstalled_and_installed_again_nothing_has_moved(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    before = await owners_by_object(admin)
    await helm.uninstall(RELEASE, namespace=SYSTEM)
    await pods.wait_gone(SYSTEM)
    await helm.install(RELEASE, values(), namespace=SYSTEM)
    await wait_rolled_out(pods)
    await wait_converged(admin, pods)
    after = await owners_by_object(admin)
    assert {key: member_of(owner) for key, owner in after.items()} == {
        key: member_of(owner) for key, owner in before.items()
    }


async def test_a_ring_that_is_deleted_first_lets_go_of_every_object(
    plane: RealPlane, pods: Pods, admin: IndependentClient
) -> None:
    """The order of docs/operate.md: the ring, while the sharder runs; then the release.

    Replicas that end because their ring ends are started again, and must not keep it by a new Lease.
    """

    codes: dict[str, set[int]] = {}

    async def is_ring_gone() -> bool:
        for pod in pods.named("websites"):
            for container in pod.containers:
                if container.exit_code is not None:
                    codes.setdefault(pod.name, set()).add(container.exit_code)
        return await is_gone(admin, CONTROLLER_RINGS, KEYS.ring) and set(codes) == set(MEMBERS)

    before = pods.ended, len(plane.writes())
    await admin.delete(CONTROLLER_RINGS, KEYS.ring)
    await eventually(is_ring_gone, within_s=WITHIN_S, told=lambda: (codes, pods.logs()))
    for resource in (WEBSITES, CONFIGMAPS):
        assert not await admin.list_all(resource, namespace=SITES, selector=KEYS.shard)
    assert all(0 in of_member for of_member in codes.values()), codes
    assert set().union(*codes.values()) <= {0, 2}, codes
    await refused_nothing(plane, pods, admin, scraped="sharder", since=before)


async def test_uninstall_leaves_the_crd_and_the_objects(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    await helm.uninstall(RELEASE, namespace=SYSTEM)
    await pods.wait_gone(SYSTEM)
    await eventually(lambda: is_gone(admin, DEPLOYMENTS, "ringleader-sharder", namespace=SYSTEM), within_s=20)
    await admin.get(CRDS, CRD_NAME)
    objects = await owners_by_object(admin)
    assert len(objects) == 2 * OBJECTS
    assert set(objects.values()) == {""}


async def test_a_ring_that_is_deleted_without_a_sharder_goes_when_the_release_returns(
    helm: Helm, pods: Pods, admin: IndependentClient
) -> None:
    """The ring outlives its release, and the same release adopts it. Its finalizer holds it until a sharder runs."""

    async def is_held() -> bool:
        return bool((await admin.get(CONTROLLER_RINGS, KEYS.ring))["metadata"].get("finalizers"))

    async def is_finished() -> bool:
        return await is_gone(admin, CONTROLLER_RINGS, KEYS.ring)

    for is_reached in (is_held, is_finished):
        await helm.install(RELEASE, values(controllers={}), namespace=SYSTEM)
        await eventually(is_reached, within_s=WITHIN_S, told=pods.logs)
        await helm.uninstall(RELEASE, namespace=SYSTEM)
        await pods.wait_gone(SYSTEM)
        if is_reached is is_held:
            ring = await admin.get(CONTROLLER_RINGS, KEYS.ring)
            assert "deletionTimestamp" not in ring["metadata"]
            await admin.delete(CONTROLLER_RINGS, KEYS.ring)


def fields_of(crd: Doc) -> Doc:
    """Fields of a ring's spec in the definition."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: Doc = schema["properties"]["spec"]["properties"]
    return fields


async def edit_crd(admin: IndependentClient, schema: str, edit: Callable[[Doc], object]) -> Doc:
    """The definition with its fields edited, under the number *schema*."""
    crd = await admin.get(CRDS, CRD_NAME)
    edit(fields_of(crd))
    crd["metadata"].setdefault("annotations", {})[SCHEMA] = schema
    return await admin.request("PUT", CRDS.path(name=CRD_NAME), body=crd)


async def refused_nothing(
    plane: RealPlane,
    pods: Pods,
    admin: IndependentClient,
    *,
    scraped: str = "",
    since: tuple[int, int] = (0, 0),
) -> None:
    """No 403 in any log, nor in the metrics that the chart's Services lead to; and requests were counted at all.

    *since*: how many pods had been deleted, and how many writes were made, before what is judged. `helm uninstall`
    takes the accounts' rights from pods that still end: those cannot release their Leases.
    """
    for name, log in pods.logs(ended=since[0]).items():
        assert "forbidden" not in log.lower(), f"{name}: {log}"
        assert "403" not in [word.strip('",:}') for word in log.split()], f"{name}: {log}"
    scrapes = {"ringleader-sharder": "ringleader-sharder-metrics", "websites": "websites"}
    for prefix, service in scrapes.items():
        for pod in pods.named(prefix) if scraped in prefix else []:
            metrics = await scrape(pod, await admin.get(SERVICES, service, namespace=SYSTEM))
            codes = {
                line.split('code="')[1][:3]
                for line in metrics.splitlines()
                if 'rest_client_requests_total{code="' in line
            }
            assert not codes & {"401", "403"}, f"{pod.name}: {codes}"
    account = f"system:serviceaccount:{SYSTEM}:"
    fleets = [write for write in plane.writes()[since[1] :] if write.user.startswith(account)]
    refused = [write for write in fleets if write.code in (401, 403)]
    assert fleets
    assert not refused
