"""Deployments, StatefulSets and pods of sharders and replicas, without what may be secret in them.

Pods are those that Leases name, and those that the same workloads select: standby sharders have no Lease of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from kubeio.errors import NotFound
from ringleader.check.environment import DEPLOYMENTS, STATEFUL_SETS
from ringleader.cluster.debug_endpoint import PODS
from ringleader.cluster.shards import Pod

if TYPE_CHECKING:
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client

PART_OF: Final = ("app.kubernetes.io/part-of", "ringleader")
"""Label of what the chart installs."""
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
)
Doc = dict[str, Any]
T = TypeVar("T")


class Attempt(Protocol):
    """Awaits a read of the part that is named; None if it fails."""

    async def __call__(self, part: str, read: Awaitable[T], /) -> T | None: ...


async def read_workloads(
    client: Client, named: Collection[Pod], *, attempt: Attempt, timeout_s: float
) -> list[tuple[ApiResource, Doc]]:
    """Those in the namespaces of the *named* pods, reduced by `status_only`."""
    found = []
    for namespace in sorted({pod.namespace for pod in named}):
        listed = {
            resource: await attempt(
                f"{resource.group_resource} in {namespace}", _list(client, resource, namespace, timeout_s)
            )
            or []
            for resource in (DEPLOYMENTS, STATEFUL_SETS, PODS)
        }
        pods = listed.pop(PODS)
        known = [pod for pod in pods if Pod(namespace, pod["metadata"]["name"]) in named]
        workloads = [
            (resource, each)
            for resource, documents in listed.items()
            for each in documents
            if PART_OF in _labels(each).items() or any(_selects(each, pod) for pod in known)
        ]
        others = [
            pod for pod in pods if pod not in known and any(_selects(each, pod) for _, each in workloads)
        ]
        found += [*workloads, *((PODS, pod) for pod in [*known, *others])]
    return [(resource, status_only(document)) for resource, document in found]


async def _list(client: Client, resource: ApiResource, namespace: str, timeout_s: float) -> list[Doc]:
    try:
        pages = client.pages(resource, namespace=namespace, timeout_s=timeout_s)
        return [msgspec.json.decode(each.raw) async for page in pages for each in page.objects]
    except NotFound:
        return []  # a server without this resource


def _labels(document: Doc) -> Mapping[str, str]:
    labels: Mapping[str, str] = document["metadata"].get("labels") or {}
    return labels


def _selects(workload: Doc, pod: Doc) -> bool:
    wanted = workload["spec"].get("selector", {}).get("matchLabels") or {}
    return bool(wanted) and wanted.items() <= _labels(pod).items()


def status_only(document: Doc) -> Doc:
    """Identity, replicas, node, images and status of a workload or a pod: nothing that a container is given.

    Termination messages go too: a container writes them, or they are the end of its log.
    """
    spec, meta = document.get("spec") or {}, document["metadata"]
    pod = spec.get("template", {}).get("spec") or spec
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    status = document.get("status") or {}
    return {
        "metadata": {field: meta[field] for field in _METADATA if field in meta},
        "spec": {field: spec[field] for field in ("replicas", "nodeName") if field in spec}
        | {"images": {each["name"]: each.get("image", "") for each in containers}},
        "status": {
            field: [_without_messages(each) for each in value]
            if field.endswith("ontainerStatuses")
            else value
            for field, value in status.items()
        },
    }


def _without_messages(container: Doc) -> Doc:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        (state.get("terminated") or {}).pop("message", None)
    return container
