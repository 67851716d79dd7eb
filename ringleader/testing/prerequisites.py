"""Objects that a fleet needs before its first process starts: CustomResourceDefinitions, namespaces, its ring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import yaml

from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from ringleader.assets import ring_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.commands import FleetSpec


async def prepare_kinds(client: IndependentClient, *, spec: FleetSpec, within_s: float = 20.0) -> None:
    """Install the ring's and the controller's CustomResourceDefinitions and wait until they are served."""
    await install_definitions(client, (ring_crd(), *spec.definitions))
    async with asyncio.timeout(within_s):
        await _wait_served(client, CONTROLLER_RINGS)
        await _wait_served(client, spec.resource)


async def install_definitions(
    client: IndependentClient, files: Iterable[Path], *, replaces: bool = False
) -> None:
    """Create the CustomResourceDefinitions in *files*; other documents there are ignored.

    Existing ones stay as they are, or get the spec of the files with *replaces*.
    """
    for path in files:
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                await client.create_if_absent(CRDS, document)
                if replaces:
                    await client.merge(CRDS, document["metadata"]["name"], {"spec": document["spec"]})


async def prepare_namespaces(client: IndependentClient, *, spec: FleetSpec) -> None:
    for name in (spec.namespace, spec.lease_namespace):
        await client.create_if_absent(NAMESPACES, _named("v1", "Namespace", name))


async def prepare_ring(client: IndependentClient, *, spec: FleetSpec) -> None:
    """Create the fleet's ring: the sharders then distribute its objects."""
    await client.create_if_absent(CONTROLLER_RINGS, spec.manifest())


async def _wait_served(client: IndependentClient, resource: ApiResource) -> None:
    while True:
        try:
            await client.list_all(resource, metadata_only=True)
        except RequestFailedError as error:
            if error.status not in (404, 503):
                raise
        else:
            return
        await asyncio.sleep(0.1)


def _named(api_version: str, kind: str, name: str) -> Doc:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
