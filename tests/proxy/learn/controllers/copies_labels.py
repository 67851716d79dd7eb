"""A controller with bad habits: it copies labels, drops others', deletes by name, and keeps one object for all."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from kubeio.access.cluster import load_cluster
from kubeio.errors import AlreadyExists, NotFound
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
SHOPS = ApiResource("example.com", "v1", "shops", "Shop")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")


async def work(client: Client) -> None:
    """One round over all Websites of the namespace `sites`."""
    sites = (await client.list_page(WEBSITES, namespace="sites")).objects
    pages = (await client.list_page(CONFIG_MAPS, namespace="sites")).objects
    for page in pages:
        if page.meta.name not in {site.meta.name for site in sites} | {"all"}:
            await client.delete(CONFIG_MAPS, page.meta.name, namespace="sites")
    for site in sites:
        name = site.meta.name
        if not site.meta.finalizers:
            patch = MergePatch({"metadata": {"finalizers": ["example.com/keep"]}})
            await client.patch(WEBSITES, name, patch, namespace="sites", type=bytes)
        if site.meta.deletion_timestamp:
            patch = MergePatch({"metadata": {"finalizers": None}})
            await client.patch(WEBSITES, name, patch, namespace="sites", type=bytes)
            continue
        owner = {"apiVersion": "example.com/v1", "kind": "Website", "name": name, "uid": site.meta.uid}
        metadata: dict[str, Any] = {"name": name, "ownerReferences": [owner | {"controller": True}]}
        spec = {"template": {"metadata": {"labels": site.meta.labels}}}
        await put(client, SHOPS, {"metadata": metadata, "spec": spec})
        await put(client, CONFIG_MAPS, {"metadata": {"name": name}})
    await put(client, CONFIG_MAPS, {"metadata": {"name": "all"}, "data": {"count": str(len(sites))}})


async def put(client: Client, kind: ApiResource, document: dict[str, Any]) -> None:
    """Create *document*, or replace what is there, other people's labels included."""
    name = document["metadata"]["name"]
    body = {"apiVersion": kind.api_version, "kind": kind.kind} | document
    try:
        await client.create(kind, body, namespace="sites", type=bytes)
    except AlreadyExists:
        try:
            found = await client.get(kind, name, namespace="sites", type=HasMeta)
        except NotFound:
            return
        body["metadata"] = document["metadata"] | {"resourceVersion": found.metadata.resource_version}
        await client.replace(kind, name, body, namespace="sites", type=bytes)


async def main() -> None:
    print("what a controller prints is not part of the report", flush=True)
    async with Client(
        load_cluster(kubeconfig=os.environ["KUBECONFIG"]), user_agent="copies-labels/1.0"
    ) as client:
        while True:
            await work(client)
            await asyncio.sleep(0.3)


if __name__ == "__main__":
    asyncio.run(main())
