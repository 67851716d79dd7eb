"""Requests of a control plane's own administrator: readiness, a ClusterRoleBinding, tokens of ServiceAccounts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.models import HasMeta
from kubeio.rest.client import Client

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_RBAC_GROUP = "rbac.authorization.k8s.io"


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _NodeStatus(msgspec.Struct):
    conditions: list[_Condition] = []


class _NodeName(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _NodeName
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _NodeList(msgspec.Struct):
    items: list[_Node]


class Administrator:
    """Requests with the administrator's kubeconfig, each on a connection of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._cluster = load_cluster(kubeconfig=str(kubeconfig))

    async def is_ready(self) -> bool:
        """Whether the server answers, has done all it does at its start, and has a namespace to work in."""
        try:
            for path in ("/readyz", "/api/v1/namespaces/default"):
                await self._request("GET", path)
        except KubeError:
            return False
        return True

    async def allow_everything(self, group: str) -> None:
        """Bind *group* to the role cluster-admin."""
        binding = {
            "metadata": {"name": group},
            "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": _RBAC_GROUP, "kind": "Group", "name": group}],
        }
        await self._request("POST", f"{_RBAC}/clusterrolebindings", binding)

    async def allow_kube_proxy(self) -> None:
        """Bind the user of kube-proxy to its role: kubeadm does it elsewhere."""
        binding = {
            "metadata": {"name": "ringleader:kube-proxy"},
            "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "ClusterRole", "name": "system:node-proxier"},
            "subjects": [{"apiGroup": _RBAC_GROUP, "kind": "User", "name": "system:kube-proxy"}],
        }
        await self._request("POST", f"{_RBAC}/clusterrolebindings", binding)

    async def ready_nodes(self) -> set[str]:
        """Names of the Nodes whose condition Ready is true."""
        nodes = msgspec.json.decode(await self._request("GET", "/api/v1/nodes"), type=_NodeList).items
        ready = _Condition("Ready", "True")
        return {node.metadata.name for node in nodes if ready in node.status.conditions}

    async def request_token(self, namespace: str, name: str, *, lifetime_s: int, pod: str = "") -> str:
        """A token of the ServiceAccount *name*; of its Pod *pod* alone, and as long as that exists, if it is given.

        Raises: NotFound if there is no such account or pod.
        """
        bound = {"boundObjectRef": await self._reference(namespace, pod)} if pod else {}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s, **bound},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = await self._request("POST", path, request)
        return msgspec.json.decode(answer, type=_TokenRequest).status.token

    async def _reference(self, namespace: str, pod: str) -> dict[str, str]:
        answer = await self._request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        uid = msgspec.json.decode(answer, type=HasMeta).metadata.uid
        return {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}

    async def _request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        async with Client(self._cluster, max_connections=1, user_agent="ringleader-devcluster") as client:
            data = None if body is None else msgspec.json.encode(body)
            return (await client.request(method, path, body=data, accept="*/*", timeout_s=10)).body
