"""A replica through a real API server's proxy to its pod: metrics come, and no token arrives for /debug.

There is no kubelet: the Pod is an object whose status names this machine's address, where a replica's port is played.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import yaml

from devcluster.real import BinariesMissing, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.models import ObjectKey
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.cluster.debug_endpoint import PODS, in_pod
from ringleader.cluster.shards import Pod
from ringleader.testing.single_task import single_task
from tests.addresses import own_address

pytestmark = pytest.mark.real
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """An administrator who shows a bearer token, as people and pods do."""
    try:
        async with single_task(real_plane(tmp_path / "plane", controller_manager=False)) as plane:
            token = await token_of_an_administrator(plane.kubeconfig)
            document = yaml.safe_load(plane.kubeconfig.read_text())
            document["users"][0]["user"] = {"token": token}
            (tmp_path / "token.kubeconfig").write_text(yaml.safe_dump(document))
            cluster = load_cluster(kubeconfig=str(tmp_path / "token.kubeconfig"))
            async with Client(cluster) as client:
                yield client
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def token_of_an_administrator(kubeconfig: Path) -> str:
    """A token of the ServiceAccount `default`, which is made one."""
    async with Client(load_cluster(kubeconfig=str(kubeconfig))) as admin:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await admin.create(ACCOUNTS, account, namespace="default", type=bytes)
        binding = {
            "apiVersion": BINDINGS.api_version,
            "kind": BINDINGS.kind,
            "metadata": {"name": "default"},
            "roleRef": {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        }
        await admin.create(BINDINGS, binding, type=bytes)
        path = ACCOUNTS.path(namespace="default", name="default", subresource="token")
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await admin.request("POST", path, body=msgspec.json.encode(asked))
        return str(msgspec.json.decode(answer.body)["status"]["token"])


async def pod(client: Client, address: str, *, name: str = "web-0") -> None:
    """A running Pod at *address*."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "one", "image": "registry.example.com/web:1"}],
        },
    }
    await client.create(PODS, body, namespace="default", type=bytes)
    status = MergePatch({"status": {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}})
    await client.patch(PODS, name, status, namespace="default", subresource="status", type=bytes)


async def test_metrics_come_through_and_the_debug_pages_see_no_token(client: Client) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        is_open = head.split()[1] == "/metrics"
        body = b"workqueue_depth 1\n" if is_open else b"only from this machine\n"
        status = "200 OK" if is_open else "401 Unauthorized"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", 0)
    await pod(client, own_address())
    endpoint = in_pod(client, Pod("default", "web-0"), port=server.sockets[0].getsockname()[1], timeout_s=10)
    assert await endpoint.read("/metrics") == b"workqueue_depth 1\n"
    asked = await endpoint.object_page(ObjectKey("default", "blog"))
    assert "401" in asked.problem
    assert "port-forward" in asked.problem
    assert [head.split()[1] for head in heads[:2]] == ["/metrics", "/debug/objects/default/blog"]
    assert all("authorization" not in head.lower() for head in heads)
    gone = in_pod(client, Pod("default", "web-1"), port=1, timeout_s=10)
    assert 'pods "web-1" not found' in (await gone.object_page(ObjectKey("default", "blog"))).problem
    server.close()
