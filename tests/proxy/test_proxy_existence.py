"""What counts as gone: an object of the ring's kinds that the API server does not have under its uid."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devcluster.embedded import EmbeddedPlane
from devcluster.faults.fault import Fault
from kubeio.access.cluster import load_cluster
from kubeio.models import OwnerReference
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from proxy.existence import Existence

ROOTS = ApiResource("", "v1", "configmaps", "ConfigMap")


@pytest.fixture
async def client(new_plane: EmbeddedPlane) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))) as client:
        yield client


async def is_gone(client: Client, api_version: str, name: str, uid: str = "1") -> bool:
    reference = OwnerReference(api_version=api_version, kind="ConfigMap", name=name, uid=uid, controller=True)
    return await Existence(client, [ROOTS]).is_gone(reference, "default")


async def test_an_object_is_gone_if_another_or_none_has_its_name(client: Client) -> None:
    made = await client.create(ROOTS, {"metadata": {"name": "web"}}, namespace="default", type=dict)
    assert not await is_gone(client, "v1", "web", uid=made["metadata"]["uid"])
    assert await is_gone(client, "v1", "web")
    assert await is_gone(client, "v1", "missing")


async def test_the_version_of_a_reference_does_not_matter(client: Client) -> None:
    assert await is_gone(client, "v2", "missing")


async def test_a_kind_of_another_group_is_beside_the_ring(client: Client) -> None:
    """Several projects have a kind Cluster, say: the ring's resource does not show theirs."""
    assert not await is_gone(client, "example.com/v1", "missing")


async def test_what_cannot_be_read_is_there(new_plane: EmbeddedPlane, client: Client) -> None:
    await new_plane.faults.add(Fault(what="error", verb="get", resource="configmaps", code=403))
    assert not await is_gone(client, "v1", "missing")
