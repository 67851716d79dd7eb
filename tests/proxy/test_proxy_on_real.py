"""The relay before a real kube-apiserver: an unmodified kube-controller-manager, labels in protobuf, upgrades."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.real_plane import RealPlane
from proxy.child import start_child
from proxy.controller_files import environment
from proxy.director import Selection
from ringleader.testing.single_task import single_task
from tests.contract.api import Api, api_from
from tests.proxy.relays import LABELS, NAME, SHARD, TERMS, ScriptedDirector, relayed

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
SELECTIONS = {
    "deployments.apps": Selection(TERMS),
    "replicasets.apps": Selection(TERMS),
    "pods": Selection(f"{SHARD}={NAME}"),
}
APPS, PODS = "/apis/apps/v1/namespaces/default", "/api/v1/namespaces/default/pods"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    async with single_task(real_plane(tmp_path_factory.mktemp("plane"), controller_manager=False)) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: RealPlane) -> AsyncIterator[Api]:
    async with api_from(plane.kubeconfig) as api:
        yield api


def controller_manager(*flags: str) -> list[str]:
    binary = find_binaries(["kube-controller-manager"], kubernetes_recipe())["kube-controller-manager"]
    return [
        str(binary),
        "--controllers=deployment-controller,replicaset-controller",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
        "--leader-elect=true",
        *flags,
    ]


def deployment(name: str, *, labels: dict[str, str], replicas: int = 3) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


async def pods_of(admin: Api, app: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await admin.get(PODS, labelSelector=f"app={app}")).body["items"]
    return found


async def until_pods(admin: Api, app: str, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        while len(found := await pods_of(admin, app)) < count:  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.05)
    return found


@pytest.mark.parametrize("encoding", ["application/vnd.kubernetes.protobuf", "application/json"])
async def test_kube_controller_manager_leads_and_works_on_what_it_is_shown(
    plane: RealPlane, admin: Api, tmp_path: Path, encoding: str
) -> None:
    mine, other = (f"{stem}-{encoding[-4:]}" for stem in ("mine", "other"))
    director = ScriptedDirector(SELECTIONS)
    async with relayed(plane.kubeconfig, tmp_path, director, locks=["kube-controller-manager"]) as through:
        command = controller_manager(
            f"--kubeconfig={through.kubeconfig}", f"--kube-api-content-type={encoding}"
        )
        child = await start_child(command, environment=environment(os.environ, tmp_path, port=through.port))
        try:
            (await admin.post(f"{APPS}/deployments", deployment(other, labels={}))).check(201)
            (await admin.post(f"{APPS}/deployments", deployment(mine, labels=LABELS))).check(201)
            pods = await until_pods(admin, mine, 3)
            assert through.locks.renewed_at is not None
            leases = await admin.get("/apis/coordination.k8s.io/v1/leases")
            assert "kube-controller-manager" not in leases.names
            (replica_set,) = (await admin.get(f"{APPS}/replicasets", labelSelector=f"app={mine}")).body[
                "items"
            ]
            for made in (*pods, replica_set):
                assert LABELS.items() <= made["metadata"]["labels"].items()
            assert not await pods_of(admin, other)
            creates = [write for write in director.begun if write.info.verb == "create" and write.body]
            assert {
                write.body.controller_uid for write in creates if write.info.resource == "pods" and write.body
            } == {replica_set["metadata"]["uid"]}
        finally:
            await child.end(grace_s=10)
        await director.wait_ended(len(director.begun))
        assert all(status is not None for _, status in director.ended)
