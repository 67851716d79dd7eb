"""The load test on a real kube-apiserver: a whole run, and what its authorizer refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS
from kubeio.errors import KubeError
from kubeio.resource import NAMESPACES, ApiResource
from loadtest.inputs.scenario import Action
from loadtest.targets.cluster import ClusterOptions, open_cluster
from loadtest.targets.target import ActionFailed
from ringleader.testing.commands import WEBSITES, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet

pytestmark = [pytest.mark.fleet, pytest.mark.real, pytest.mark.timeout(400)]
RBAC: Final = "rbac.authorization.k8s.io"
ROLES = ApiResource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ApiResource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings"], "verbs": ["list"]},
    {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": ["list", "watch", "create"]},
]


@pytest.fixture(autouse=True)
def _servers() -> None:
    try:
        ensure_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def loadtest(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ringleader", "loadtest", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, said = await process.communicate()
    return process.returncode or 0, out.decode(), said.decode()


@pytest.mark.slow
async def test_a_run_on_a_real_control_plane_reads_its_own_metrics_too(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("assigned: 60s\nready: 60s\nfailures: 0.1%\noverlaps: 0\nforeignWrites: 0\nunowned: 0\n")
    arguments = ["--objects", "200", "--rate", "10", "--duration", "20s", "--slo", "slo.yaml", "-o", "json"]
    code, out, said = await loadtest(tmp_path, "join", "--plane", "real", *arguments)
    assert code == 0, said
    report = json.loads(out)
    assert report["api_server"]["PATCH"]["requests"] > 200
    assert report["api_server_codes"]["201"] > 10
    assert report["moved"] > 0


async def test_missing_rights_are_named_with_the_rule_before_anything_is_created(tmp_path: Path) -> None:
    async with (
        real_plane(tmp_path / "plane", controller_manager=False) as plane,
        open_fleet(plane, tmp_path / "fleet", spec=FleetSpec()) as fleet,
    ):
        await fleet.create_ring()
        role = {"metadata": {"name": "ada"}, "rules": RULES}
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "ada"}
        subject = {"apiGroup": RBAC, "kind": "User", "name": "ada"}
        await fleet.client.create(ROLES, role)
        binding = {"metadata": {"name": "ada"}, "roleRef": reference, "subjects": [subject]}
        await fleet.client.create(BINDINGS, binding)
        kubeconfig = await plane.kubeconfig_for("ada", admin=False)
        code, _, said = await loadtest(
            tmp_path, "steady", "--kubeconfig", str(kubeconfig), "-n", fleet.spec.namespace
        )
        assert code == 1
        assert said == (
            "error: ada may not patch, delete websites.example.com in namespace sites; this rule in a Role in"
            ' namespace sites bound to it grants that: {"apiGroups": ["example.com"], "resources":'
            ' ["websites"], "verbs": ["patch", "delete"]}\n'
        )
        assert await fleet.client.list_all(WEBSITES) == []


APPS: Final = {
    plural: ApiResource("apps", "v1", plural, kind)
    for plural, kind in (
        ("statefulsets", "StatefulSet"),
        ("replicasets", "ReplicaSet"),
        ("deployments", "Deployment"),
    )
}
PODS = ApiResource("", "v1", "pods", "Pod")
PODS_IN: Final = "shop"
"""Not where the Leases are: a replica's Lease says where its pod is."""
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web"}]},
}


async def owned_by(
    fleet: Fleet, plural: str, name: str, owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A workload of two replicas, controlled by *owner*; gives a reference to it."""
    metadata: dict[str, Any] = {"name": name} | ({"ownerReferences": [owner]} if owner else {})
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    if plural == "statefulsets":
        spec["serviceName"] = "web"
    resource = APPS[plural]
    body = {"apiVersion": "apps/v1", "kind": resource.kind, "metadata": metadata, "spec": spec}
    made = await fleet.client.create(resource, body, namespace=PODS_IN)
    return {
        "apiVersion": "apps/v1",
        "kind": resource.kind,
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


async def put_pods(fleet: Fleet, names: Iterable[str], owner: dict[str, Any], *, namespace: str) -> None:
    """Pods as the fleet's processes would be in; an API server without a kubelet keeps them as they are."""
    for number, name in enumerate(names):
        spec = {**TEMPLATE["spec"], "nodeName": f"node-{number % 2}"}
        metadata = {"name": name, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await fleet.client.create_if_absent(PODS, body, namespace=namespace)


@pytest.mark.slow
async def test_actions_on_a_cluster_are_what_its_api_can_do(tmp_path: Path) -> None:
    """The Leases are those of real replicas and sharders; no kubelet acts on what happens to the pods."""
    async with (
        real_plane(tmp_path / "plane", controller_manager=False) as plane,
        open_fleet(
            plane,
            tmp_path / "fleet",
            spec=FleetSpec(sharders=1, lease_s=10, environment={"POD_NAMESPACE": PODS_IN}),
        ) as fleet,
    ):
        await fleet.client.create(NAMESPACES, {"metadata": {"name": PODS_IN}})
        await fleet.start(replicas=3)
        await fleet.wait_converged()
        leases_in = fleet.spec.lease_namespace
        options = ClusterOptions(
            kubeconfig=str(plane.kubeconfig), context="", namespace="sites", ring="websites"
        )

        async def pods() -> set[str]:
            found = [
                pod
                for namespace in (PODS_IN, leases_in)
                for pod in await fleet.client.list_all(PODS, namespace=namespace)
            ]
            return {pod["metadata"]["name"] for pod in found}

        async def workload(plural: str, name: str) -> dict[str, Any]:
            return await fleet.client.get(APPS[plural], name, namespace=PODS_IN)

        async with open_cluster(options) as cluster:
            with pytest.raises(KubeError):
                await cluster.act(Action(0, "kill"))  # the members are no pods yet
            stateful = await owned_by(fleet, "statefulsets", "web")
            replicas = ["replica-1", "replica-2", "replica-3"]
            await put_pods(fleet, replicas, stateful, namespace=PODS_IN)
            await put_pods(fleet, ["sharder-1"], stateful, namespace=leases_in)

            assert "scaled from 2 to 3" in await cluster.act(Action(0, "join"))
            assert "scaled from 3 to 2" in await cluster.act(Action(0, "leave"))
            assert (await workload("statefulsets", "web"))["spec"]["replicas"] == 2
            await cluster.act(Action(0, "roll"))
            stamped = (await workload("statefulsets", "web"))["spec"]["template"]["metadata"]["annotations"]
            assert list(stamped) == ["kubectl.kubernetes.io/restartedAt"]

            await cluster.act(Action(0, "kill", replica="replica-2"))
            assert await pods() == {"replica-1", "replica-3", "sharder-1"}
            await cluster.act(Action(0, "failover"))
            assert await pods() == {"replica-1", "replica-3"}
            await put_pods(fleet, replicas, stateful, namespace=PODS_IN)
            said = await cluster.act(Action(0, "node-loss"))
            assert said.startswith("the pods of node node-0 were deleted without grace")
            assert await pods() == {"replica-2"}
            with pytest.raises(ActionFailed, match="replica-9 is no member"):
                await cluster.act(Action(0, "kill", replica="replica-9"))

            for name in await pods():
                await fleet.client.delete(PODS, name, namespace=PODS_IN)
            deployment = await owned_by(fleet, "deployments", "rolled")
            middle = await owned_by(fleet, "replicasets", "rolled-1", deployment)
            await put_pods(fleet, replicas, middle, namespace=PODS_IN)
            assert "Deployment rolled was scaled from 2 to 3" in await cluster.act(Action(0, "join"))
