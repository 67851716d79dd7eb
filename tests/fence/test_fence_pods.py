"""Identity `pod`: shards that name themselves by their tokens alone, as those of the reference implementation do.

Their Lease, and so the label, is called like their pod. Tokens of other accounts name pods, too, and are not fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio

from devcluster.real.real_plane import RealPlane
from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, IndependentClient
from tests.fence.fenced import (
    KEYS,
    PODS,
    RING,
    SITES,
    WEBSITES,
    apply,
    prepare,
    printed,
    refused_by_policy,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ACCOUNT_OF = {"web-0": "shards", "web-1": "shards", "sharder-0": "sharder"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(plane: RealPlane) -> AsyncIterator[dict[str, IndependentClient]]:
    """A client per pod, with the token that a kubelet would mount; `admin` is the administrator."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(IndependentClient(plane.kubeconfig))
        clients = {"admin": admin}
        await prepare(admin)
        await apply(
            admin, await printed(plane.kubeconfig, RING, "--identity", "pod", "--account", f"{SITES}/shards")
        )
        for pod, account in ACCOUNT_OF.items():
            await admin.create_if_absent(ACCOUNTS, {"metadata": {"name": account}}, namespace=SITES)
            spec = {"serviceAccountName": account, "containers": [{"name": "x", "image": "x"}]}
            await admin.create(PODS, {"metadata": {"name": pod}, "spec": spec}, namespace=SITES)
            kubeconfig = await plane.service_account_kubeconfig(SITES, account, pod=pod)
            clients[pod] = await stack.enter_async_context(IndependentClient(kubeconfig))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [
            {"kind": "ServiceAccount", "namespace": SITES, "name": each} for each in ("shards", "sharder")
        ]
        await admin.create(BINDINGS, {"metadata": {"name": "pods"}, "roleRef": role, "subjects": subjects})
        await admin.create(WEBSITES, website("probe", label="web-0"), namespace=SITES)
        async with asyncio.timeout(60):
            while True:
                if await refused_by_policy(clients["web-1"].merge(WEBSITES, "probe", {}, namespace=SITES)):
                    break
                await asyncio.sleep(0.1)
        yield clients


class Row(NamedTuple):
    text: str
    who: str
    before: tuple[str, str | None]
    patch: Doc
    passes: bool = False


WRITE: Doc = {"spec": {"html": "y"}}
OWN, ASKED = ("web-0", None), ("web-0", "web-1")
ROWS = [
    Row("a pod writes its own", "web-0", OWN, WRITE, passes=True),
    Row("a pod writes another's", "web-1", OWN, WRITE),
    Row("a pod writes what it shall get", "web-1", ASKED, WRITE),
    Row("a pod writes what has no owner", "web-0", ("", None), WRITE),
    Row(
        "a pod gives up",
        "web-0",
        ASKED,
        {"metadata": {"labels": {KEYS.shard: None, KEYS.drain: None}}},
        passes=True,
    ),
    Row("a pod takes", "web-1", ASKED, {"metadata": {"labels": {KEYS.shard: "web-1", KEYS.drain: None}}}),
    Row(
        "the sharder assigns",
        "sharder-0",
        ("", None),
        {"metadata": {"labels": {KEYS.shard: "web-1"}}},
        passes=True,
    ),
    Row("the sharder asks", "sharder-0", OWN, {"metadata": {"labels": {KEYS.drain: "web-1"}}}, passes=True),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text.replace(" ", "_"))
async def test_what_a_pod_of_the_account_may_write(clients: dict[str, IndependentClient], row: Row) -> None:
    label, drain = row.before
    name = row.text.replace(" ", "-").replace("'", "")
    await clients["admin"].create(WEBSITES, website(name, label=label, drain=drain), namespace=SITES)
    write = clients[row.who].merge(WEBSITES, name, row.patch, namespace=SITES)
    assert await refused_by_policy(write) is not row.passes
