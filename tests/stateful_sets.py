"""StatefulSets for tests: objects of the API alone, no controller makes pods of them."""

from __future__ import annotations

import asyncio

from devcluster.embedded.stateful_sets import STATEFUL_SETS_DEFINITION
from kubeio.resource import CRDS, ApiResource
from ringleader.testing.client import IndependentClient, RequestFailedError

STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")


async def serve_stateful_sets(client: IndependentClient) -> None:
    """Have StatefulSets served, if the plane does not: the embedded one has few built-in kinds."""
    if not await _is_served(client):
        await client.create(CRDS, STATEFUL_SETS_DEFINITION)
        async with asyncio.timeout(30):
            while not await _is_served(client):  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.05)


async def _is_served(client: IndependentClient) -> bool:
    try:
        await client.list_all(STATEFUL_SETS)
    except RequestFailedError as error:
        if error.status == 404:
            return False
        raise
    return True


async def scale(
    client: IndependentClient, name: str, replicas: int, *, namespace: str, start: int = 0
) -> None:
    """Have the StatefulSet *name* want *replicas*, the first of which has the ordinal *start*."""
    wanted = {"replicas": replicas, "ordinals": {"start": start}}
    try:
        await client.merge(STATEFUL_SETS, name, {"spec": wanted}, namespace=namespace)
    except RequestFailedError as error:
        if error.status != 404:
            raise
        labels = {"app": name}
        pod = {"containers": [{"name": "controller", "image": "registry.example.com/controller:1"}]}
        spec = {
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **wanted,
        }
        body = {
            "apiVersion": STATEFUL_SETS.api_version,
            "kind": STATEFUL_SETS.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await client.create(STATEFUL_SETS, body, namespace=namespace)
