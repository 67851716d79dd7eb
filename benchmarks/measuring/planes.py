"""The control plane of a benchmark, and the accounts that act on it.

Accounts are alike: bearer tokens without the privileges of an administrator, so that the server queues them alike.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from benchmarks.measuring.etcd import Etcd, etcd_client
from benchmarks.measuring.stock import ApiWriter, Collection, EtcdWriter, StockWriter
from devcluster.embedded import embedded_plane
from devcluster.plane import ControlPlane
from devcluster.real import RealPlane, ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

_SERVICE_ACCOUNTS: Final = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@dataclass(frozen=True, slots=True)
class Account:
    """An account that may do everything and is queued like all others."""

    kubeconfig: Path
    token: str


@asynccontextmanager
async def open_plane(
    directory: Path, *, is_real: bool, apiserver_flags: Sequence[str] = ()
) -> AsyncIterator[ControlPlane]:
    """A control plane without controllers, ended with the block. *apiserver_flags*: of a real one.

    Raises: BinariesMissing.
    """
    if is_real:
        await asyncio.to_thread(ensure_binaries, SERVERS, kubernetes_recipe())
        # no controllers: nothing may work on the server but what is measured
        async with real_plane(directory, controller_manager=False, apiserver_flags=apiserver_flags) as real:
            yield real
    else:
        async with embedded_plane(directory) as embedded:
            yield embedded


async def writer_for(plane: ControlPlane, stack: AsyncExitStack, collection: Collection) -> StockWriter:
    """The quickest way to put objects into a state; its connections end with *stack*."""
    if isinstance(plane, RealPlane):
        client = await stack.enter_async_context(etcd_client(plane.etcd_url))
        return EtcdWriter(Etcd(client), collection)
    return ApiWriter(collection)


def _role(name: str, is_sharder: bool) -> dict[str, object]:
    """Everything, verb by verb: to the chart's guard an account with every verb by `*` is not the sharder."""
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "own"]
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs + ["assign"] * is_sharder},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]
    return {"metadata": {"name": name}, "rules": rules}


async def make_account(plane: ControlPlane, client: Client, name: str, *, namespace: str) -> Account:
    """The account *name*; on a real plane a ServiceAccount in *namespace*."""
    if isinstance(plane, RealPlane):
        await client.create(_SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=namespace, type=bytes)
        role = f"bench-{name}"
        await client.request("POST", _ROLES, body=json.dumps(_role(role, name == "sharder")).encode())
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        }
        await client.request("POST", _BINDINGS, body=json.dumps(binding).encode())
        kubeconfig = await plane.service_account_kubeconfig(namespace, name)
    else:
        kubeconfig = await plane.kubeconfig_for(name)
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    return Account(kubeconfig, user["token"])
