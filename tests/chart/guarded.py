"""A real API server with the chart's policies, and clients of everybody who may meet them. No sharder, no replica runs.

Tokens of pods are what a kubelet mounts: TokenRequest for a Pod object that exists, so that the pod's name in them is
the server's own word.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import yaml

from devcluster.real import kubernetes_recipe
from devcluster.real.real_plane import RealPlane
from kubeio.protocol import RingKeys
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from ringleader.assets import ring_crd, website_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from tests.chart.helm import Helm

RELEASE = "ringleader"
SYSTEM = "ringleader-system"
SITES = "sites"
RING = "websites"
LEASE_NAMESPACE = f"{RELEASE}-{RING}"
KEYS = RingKeys(RING)
TURN = KEYS.turn
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SERVICES = ApiResource("", "v1", "services", "Service")
PODS = ApiResource("", "v1", "pods", "Pod")
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
POLICIES = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "P", namespaced=False
)
WITHIN_S = 60.0
IS_MENDED = tuple(map(int, kubernetes_recipe().version.split(".")[:2])) >= (1, 36)
"""Whether the API server has mutating policies."""
RING_VALUES: Doc = {
    "resources": [
        {
            "group": "example.com",
            "resource": "websites",
            "controlledResources": [{"resource": "configmaps"}, {"resource": "services"}],
        }
    ]
}
CONTROLLER: Doc = {
    "ring": RING,
    "image": {"repository": "registry.example.com/websites", "tag": "1"},
    "target": "/app/controller.py:websites",
}
ACCOUNT_OF = {
    "tenant": (SITES, "tenant", ""),
    "a backup": ("velero", "velero", ""),
    "endpointslice-controller": ("kube-system", "endpointslice-controller", ""),
    "sharder": (SYSTEM, "ringleader-sharder", "ringleader-sharder-a"),
    "web-0": (SYSTEM, "web", "web-0"),
    "web-1": (SYSTEM, "web", "web-1"),
    "web-2": (SYSTEM, "web", "web-2"),
    "a replica without a pod": (SYSTEM, "web", ""),
}
"""Namespace, ServiceAccount and Pod of those who write; `admin` is the cluster's administrator."""
LONG_POD = f"{'a' * 52}--place-0"


@dataclass
class Guarded:
    """The plane, and who writes to it."""

    plane: RealPlane
    admin: IndependentClient
    clients: dict[str, IndependentClient] = field(default_factory=dict)

    def by(self, who: str) -> IndependentClient:
        return self.admin if who == "admin" else self.clients[who]


def values(**changed: object) -> Doc:
    return {"rings": {RING: RING_VALUES}, "controllers": {"web": CONTROLLER}, **changed}


@asynccontextmanager
async def guarded_plane(
    plane: RealPlane, admin: IndependentClient, helm: Helm, chart_values: Doc
) -> AsyncIterator[Guarded]:
    """The chart installed with *chart_values*, its policies in force."""
    for path in (ring_crd(), website_crd()):
        await admin.create_if_absent(CRDS, yaml.safe_load(path.read_text()))
    for resource in (ApiResource("ringleader.dev", "v1alpha1", "controllerrings", "X", False), WEBSITES):
        await once_served(partial(admin.list_all, resource))
    await helm.install(RELEASE, chart_values, namespace=SYSTEM)
    guarded = Guarded(plane, admin)
    async with AsyncExitStack() as stack:
        for who in await make_accounts(plane, admin):
            path = await kubeconfig_of(plane, admin, who)
            guarded.clients[who] = await stack.enter_async_context(IndependentClient(path))
        await in_force(guarded)
        yield guarded


async def make_accounts(plane: RealPlane, admin: IndependentClient) -> list[str]:
    """Accounts besides the chart's, with the rights that let them reach the policies: no wildcard but the backup's."""
    everybody = []
    for namespace, account, _ in ACCOUNT_OF.values():
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": namespace}})
        await admin.create_if_absent(ACCOUNTS, {"metadata": {"name": account}}, namespace=namespace)
        everybody.append({"kind": "ServiceAccount", "namespace": namespace, "name": account})
    verbs = ["get", "list", "create", "update", "patch", "delete"]
    rules = [
        {"apiGroups": ["example.com"], "resources": ["websites", "websites/status"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["configmaps", "services", "services/status"], "verbs": verbs},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
    ]
    await admin.create(ROLES, {"metadata": {"name": "writes"}, "rules": rules})
    await bind(admin, "writes", everybody)
    await bind(admin, "cluster-admin", [s for s in everybody if s["name"] == "velero"])
    return list(ACCOUNT_OF)


async def bind(admin: IndependentClient, role: str, subjects: list[Doc]) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    await admin.create(
        BINDINGS, {"metadata": {"name": f"test-{role}"}, "roleRef": reference, "subjects": subjects}
    )


async def kubeconfig_of(plane: RealPlane, admin: IndependentClient, who: str) -> Path:
    namespace, account, pod = ACCOUNT_OF.get(who, (SYSTEM, "web", who))
    if pod:
        await admin.create_if_absent(PODS, pod_object(pod, account), namespace=namespace)
    return await plane.service_account_kubeconfig(namespace, account, pod=pod)


def pod_object(name: str, account: str) -> Doc:
    container = {"name": "main", "image": "registry.example.com/x:1"}
    return {"metadata": {"name": name}, "spec": {"serviceAccountName": account, "containers": [container]}}


async def once_served(ask: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await ask()
            except RequestFailedError as error:
                if error.status not in (404, 429, 503):
                    raise
            else:
                return
            await asyncio.sleep(0.1)


async def once_refused(ask: Callable[[], Awaitable[object]], undo: Callable[[], Awaitable[object]]) -> None:
    """Wait until *ask* is refused by a policy: a policy is in force a moment after it was written."""
    async with asyncio.timeout(WITHIN_S):
        while not await is_refused(ask):
            await undo()
            await asyncio.sleep(0.1)


async def is_refused(ask: Callable[[], Awaitable[object]]) -> bool:
    """Whether a policy refuses it. Raises what other refusals say."""
    try:
        await ask()
    except RequestFailedError as error:
        if "ValidatingAdmissionPolicy" not in error.message:
            raise
        return True
    return False


async def in_force(guarded: Guarded) -> None:
    """Wait until the policies about labels, Leases and the election are in force."""
    tenant = guarded.by("tenant")
    await tenant.create(WEBSITES, website("probe"), namespace=SITES)

    owners = (f"forged-{number}" for number in count())

    async def forge() -> None:
        patch = {"metadata": {"labels": {KEYS.shard: next(owners)}}}
        await tenant.merge(WEBSITES, "probe", patch, namespace=SITES)

    await once_refused(forge, partial(asyncio.sleep, 0))
    election: Doc = {"metadata": {"name": "ringleader-sharder"}, "spec": {}}
    for obj, namespace in ((lease("probe-aaaaaaaa", member="probe"), LEASE_NAMESPACE), (election, SYSTEM)):
        await once_refused(
            partial(tenant.create, LEASES, obj, namespace=namespace),
            partial(tenant.delete, LEASES, obj["metadata"]["name"], namespace=namespace),
        )
    await tenant.delete(WEBSITES, "probe", namespace=SITES)


async def type_warnings(admin: IndependentClient) -> list[Doc]:
    """What the server's type checker says of the expressions of each policy."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            statuses = [policy.get("status", {}) for policy in await admin.list_all(POLICIES)]
            if all("typeChecking" in status for status in statuses):
                break
            await asyncio.sleep(0.1)
    return [one for status in statuses for one in status["typeChecking"].get("expressionWarnings", [])]


def controlled_by(parent: Doc) -> list[Doc]:
    """The ownerReferences of what *parent* controls."""
    reference = {key: parent["metadata"][key] for key in ("name", "uid")}
    return [reference | {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "controller": True}]


def website(name: str, **meta: object) -> Doc:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": name, **meta},
        "spec": {"html": "x"},
    }


def lease(
    name: str,
    *,
    member: str,
    ring: str = RING,
    holder: str | None = None,
    duration_s: int = 15,
    marks: dict[str, str] | None = None,
) -> Doc:
    """The Lease of a life of *member*, held by its own name unless *holder* says otherwise."""
    annotations = {KEYS.member: member, KEYS.protocol: "v1", **(marks or {})}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {KEYS.ring_label: ring}, "annotations": annotations},
        "spec": {"holderIdentity": name if holder is None else holder, "leaseDurationSeconds": duration_s},
    }
