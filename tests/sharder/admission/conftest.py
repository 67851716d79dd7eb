"""An API server in memory for tests of what is kept there."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.embedded import EmbeddedPlane, embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.resource import NAMESPACES
from kubeio.rest.client import Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPlane]:
    async with embedded_plane(tmp_path_factory.mktemp("plane"), faults=True) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(embedded: EmbeddedPlane) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(embedded.kubeconfig))) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(client: Client) -> str:
    """A fresh namespace."""
    name = f"system-{secrets.token_hex(4)}"
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.create(NAMESPACES, document, type=bytes)
    return name
