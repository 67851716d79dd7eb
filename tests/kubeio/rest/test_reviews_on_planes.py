"""What API servers answer about tokens and rights: the embedded one and the real authorizer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import yaml

from devcluster.plane import ControlPlane
from kubeio.access.cluster import load_cluster
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.reviews import Reviews, User

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


async def test_a_forged_token_has_no_bearer(admin: Client) -> None:
    assert await Reviews(admin).bearer("forged") is None


async def test_a_token_of_the_embedded_plane_has_a_bearer_who_may_all(
    embedded: ControlPlane,
) -> None:
    async with Client(load_cluster(kubeconfig=str(embedded.kubeconfig))) as client:
        kubeconfig = yaml.safe_load((await embedded.kubeconfig_for("ada")).read_text())
        user = await Reviews(client).bearer(kubeconfig["users"][0]["user"]["token"])
        assert user is not None
        assert user.username == "ada"
        assert await Reviews(client).may(user, verb="get", path="/debug/objects")
        assert not await Reviews(client).may(User("nobody"), verb="get", path="/debug/objects")


@pytest.mark.parametrize("plane", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
async def test_the_right_is_a_nonresource_url_of_a_cluster_role(admin: Client, namespace: str) -> None:
    """The ClusterRole that docs/operate.md shows, before a real authorizer."""
    account = {"metadata": {"name": "oncall", "namespace": namespace}}
    await admin.create(ACCOUNTS, account, namespace=namespace, type=bytes)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/oncall/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.request("POST", path, body=msgspec.json.encode(request))
    token = msgspec.json.decode(answer.body)["status"]["token"]
    reviews = Reviews(admin)
    user = await reviews.bearer(token)
    assert user is not None
    assert user.username == f"system:serviceaccount:{namespace}:oncall"
    assert not await reviews.may(user, verb="get", path="/debug/objects")
    rule = {"nonResourceURLs": ["/debug/objects"], "verbs": ["get"]}
    await admin.create(ROLES, {"metadata": {"name": f"debug-{namespace}"}, "rules": [rule]}, type=bytes)
    binding = {
        "metadata": {"name": f"debug-{namespace}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"debug-{namespace}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "oncall", "namespace": namespace}],
    }
    await admin.create(BINDINGS, binding, type=bytes)
    async with asyncio.timeout(10):
        while not await reviews.may(user, verb="get", path="/debug/objects"):  # noqa: ASYNC110 - it follows a watch
            await asyncio.sleep(0.05)
    assert not await reviews.may(user, verb="get", path="/debug/queue")
