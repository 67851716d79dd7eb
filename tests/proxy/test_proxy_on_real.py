"""The relay before a real kube-apiserver: an unmodified kube-controller-manager, labels in protobuf, upgrades."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.real_plane import RealPlane
from kubeio.rest.request_info import request_info
from proxy.bodies import APPLY, PROTOBUF
from proxy.child import start_child
from proxy.controller_files import environment
from proxy.controller_process import BehindRelay
from proxy.director import Selection
from proxy.protobuf import ObjectHead
from ringleader.testing.single_task import single_task
from tests.contract.api import Api, api_from
from tests.proxy.protobuf_writer import field, message, metadata
from tests.proxy.relays import LABELS, NAME, SHARD, TERMS, ScriptedDirector, raw_client, relayed

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
LOCK = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
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
            async with raw_client(through.port) as client:
                status, _, lock = await client.ask("GET", LOCK)
            assert status == 200
            assert socket.gethostname().encode() in lock
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


async def test_the_next_life_of_a_controller_leads_at_once(
    plane: RealPlane, admin: Api, tmp_path: Path
) -> None:
    director = ScriptedDirector(SELECTIONS)
    async with relayed(plane.kubeconfig, tmp_path, director, locks=["kube-controller-manager"]) as through:
        process = BehindRelay(
            controller_manager(f"--kubeconfig={through.kubeconfig}"),
            through.relay,
            through.locks,
            environment=environment(os.environ, tmp_path, port=through.port),
            stop_within_s=10,
        )
        for name in ("before", "after"):
            await process.start()
            try:
                (await admin.post(f"{APPS}/deployments", deployment(name, labels=LABELS))).check(201)
                begun = asyncio.get_running_loop().time()
                await until_pods(admin, name, 3)
                assert (
                    asyncio.get_running_loop().time() - begun < 10
                )  # a lock of the predecessor would cost 15 s
            finally:
                await process.stop()
            await through.relay.wait_quiet()
            assert len(director.ended) == len(director.begun)
            assert all(status is not None for _, status in director.ended)


def objects(name: str, version: str = "") -> dict[str, tuple[str, str, bytes]]:
    """Paths of collections and, in protobuf, an object of each with a label and an annotation."""
    head = ObjectHead(name=name, labels={"own": "label", SHARD: "another"})
    meta = field(1, metadata(head) + field(6, version) + field(12, field(1, "a") + field(2, "b")))
    container = field(2, field(1, "main") + field(2, "none"))
    app = field(1, field(1, "app") + field(2, name))
    template = field(3, field(1, field(11, field(1, "app") + field(2, name))) + field(2, container))
    return {
        PODS: ("v1", "Pod", meta + field(2, container)),
        "/api/v1/namespaces/default/configmaps": (
            "v1",
            "ConfigMap",
            meta + field(2, field(1, "k") + field(2, "v")),
        ),
        f"{APPS}/replicasets": (
            "apps/v1",
            "ReplicaSet",
            meta + field(2, field(1, 2) + field(2, app) + template),
        ),
        "/apis/coordination.k8s.io/v1/namespaces/default/leases": (
            "coordination.k8s.io/v1",
            "Lease",
            meta + field(2, field(1, "me")),
        ),
    }


@pytest.mark.parametrize("path", list(objects("x")))
async def test_labels_appended_to_protobuf_are_labels_to_the_api_server(
    plane: RealPlane, admin: Api, tmp_path: Path, path: str
) -> None:
    name = f"proto-{path.rpartition('/')[2]}"
    selections = {request_info("POST", path).group_resource: Selection(TERMS)}
    body = message(*objects(name)[path])
    async with (
        relayed(plane.kubeconfig, tmp_path, ScriptedDirector(selections)) as through,
        api_from(through.kubeconfig) as api,
    ):
        made = await api.request("POST", path, body, content_type=PROTOBUF)
        made.check(201)
        body = message(*objects(name, made.version)[path])
        (await api.request("PUT", f"{path}/{name}", body, content_type=PROTOBUF)).check(200)
    stored = await admin.get(f"{path}/{name}")
    assert stored.labels.items() >= (LABELS | {"own": "label"}).items()
    assert stored.meta["annotations"]["a"] == "b"
    assert "Warning" not in made.headers
    (write, _) = through.director.asked
    assert write.body is not None
    assert write.body.name == name


async def test_labels_that_an_apply_once_carried_and_then_did_not_stay(
    plane: RealPlane, admin: Api, tmp_path: Path
) -> None:
    """The API server removes what its manager applied and applies no more."""
    path = "/api/v1/namespaces/default/configmaps/applied"
    director = ScriptedDirector({"configmaps": Selection(TERMS)})
    async with relayed(plane.kubeconfig, tmp_path, director) as through, api_from(through.kubeconfig) as api:
        for labels in (LABELS | {"own": "label"}, {}):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "applied", "labels": labels},
            }
            apply = json.dumps(body).encode()
            answer = await api.request("PATCH", f"{path}?fieldManager=x", apply, content_type=APPLY)
            assert answer.status in (200, 201)
    assert (await admin.get(path)).labels == LABELS


async def test_a_watch_over_a_websocket_is_selected_too(plane: RealPlane, admin: Api, tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    director = ScriptedDirector({"configmaps": Selection(TERMS)})
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    upgrade += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: https://localhost"]
    async with relayed(plane.kubeconfig, tmp_path, director) as through, raw_client(through.port) as client:
        client.send("GET", f"{path}?watch=true", b"", *upgrade)
        status, headers = await client.head()
        assert (status, headers["upgrade"]) == (101, "websocket")
        (await admin.post(path, {"metadata": {"name": "unseen"}})).check(201)
        (await admin.post(path, {"metadata": {"name": "shown", "labels": LABELS}})).check(201)
        seen = b""
        async with asyncio.timeout(10):
            while b'"name":"shown"' not in seen:
                seen += await client.reader.read(2**16)
        assert b"unseen" not in seen
