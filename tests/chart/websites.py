"""Websites on the ring of the chart's tests: the values that bring it, and whether everything is where it belongs."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import LEASES, ApiResource
from ringleader.assets import website_controller
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from tests.chart.running_pods import Pods, eventually

KEYS = RingKeys("websites")
SITES = "sites"
LEASES_OF_RING = "ringleader-websites"
OBJECTS = 30
WITHIN_S = 60
MEMBERS = ["websites-0", "websites-1", "websites-2"]
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
RING: Doc = {
    "settleSeconds": 1,
    "holdSeconds": 30,
    "maxLeaseDurationSeconds": 10,
    "resources": [
        {
            "group": "example.com",
            "resource": "websites",
            "controlledResources": [{"group": "", "resource": "configmaps"}],
        }
    ],
}
CONTROLLER: Doc = {
    "image": {"repository": "registry.example.com/websites", "tag": "1"},
    "target": f"{website_controller()}:websites",
    "leaseDurationSeconds": 5,
    "replicas": 3,
    "rules": [
        {"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "delete"]},
    ],
}


def website(number: int) -> Doc:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": f"site-{number}"},
        "spec": {"html": f"<h1>{number}</h1>"},
    }


def member_of(shard: str) -> str:
    """The member that the life *shard* fills: without its eight random digits."""
    return shard.rpartition("-")[0]


async def owners_by_object(admin: IndependentClient) -> dict[tuple[str, str], str]:
    """The owner of every Website and of every ConfigMap made for one; empty if it has none."""
    owners = {}
    for resource in (WEBSITES, CONFIGMAPS):
        for obj in await admin.list_all(resource, namespace=SITES):
            meta = obj["metadata"]
            if resource is WEBSITES or meta.get("ownerReferences"):
                owners[resource.plural, meta["name"]] = meta.get("labels", {}).get(KEYS.shard, "")
    return owners


async def is_converged(
    admin: IndependentClient, seen: list[object] | None = None, members: Set[str] = frozenset()
) -> bool:
    """Every Website reconciled in its newest version, everything owned by *members* that hold Leases, and balanced.

    *seen* gets what was looked at, for messages.
    """
    members = members or set(MEMBERS)
    sites = await admin.list_all(WEBSITES, namespace=SITES)
    held = {
        lease["metadata"]["name"]
        for lease in await admin.list_all(LEASES, namespace=LEASES_OF_RING)
        if lease["spec"].get("holderIdentity") == lease["metadata"]["name"]
    }
    owners = await owners_by_object(admin)
    status = (await admin.get(CONTROLLER_RINGS, KEYS.ring)).get("status", {})
    if seen is not None:
        seen[:] = [held, owners, [site.get("status") for site in sites], status]
    return (
        len(owners) == 2 * OBJECTS
        and set(owners.values()) <= held
        and {member_of(owner) for owner in owners.values()} == members
        and all(is_ready(site) for site in sites)
        and condition(status, "Ready") == condition(status, "Balanced") == "True"
        and status["availableShards"] == len(members)
        and status["unassigned"] == status["inFlight"] == 0
    )


async def wait_converged(admin: IndependentClient, pods: Pods, members: Set[str] = frozenset()) -> None:
    seen: list[object] = []
    await eventually(
        lambda: is_converged(admin, seen, members), within_s=WITHIN_S, told=lambda: (seen, pods.logs())
    )


def is_ready(site: Doc) -> bool:
    status = site.get("status", {})
    return (
        condition(status, "Ready") == "True"
        and status["observedGeneration"] == site["metadata"]["generation"]
    )


def condition(status: dict[str, Any], kind: str) -> str:
    return next((str(c["status"]) for c in status.get("conditions", []) if c["type"] == kind), "")


async def is_served(admin: IndependentClient, resource: ApiResource) -> bool:
    try:
        await admin.list_all(resource)
    except RequestFailedError:
        return False
    return True


async def is_gone(admin: IndependentClient, resource: ApiResource, name: str, *, namespace: str = "") -> bool:
    try:
        await admin.get(resource, name, namespace=namespace)
    except RequestFailedError as error:
        return error.status == 404
    return False


async def is_there(
    admin: IndependentClient, resource: ApiResource, name: str, *, namespace: str = ""
) -> bool:
    return not await is_gone(admin, resource, name, namespace=namespace)
