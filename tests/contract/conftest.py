"""Both control planes, one after the other, for every test of the contract: started once, shared by all.

Every test works in a namespace of its own; whoever changes what all share (restart) puts it back.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from tests.contract.api import Api, api_from
from tests.contract.definitions import GADGETS, SITES, define


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.real)]
)
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A running control plane that logs its writes."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        from devcluster.embedded import embedded_plane

        async with embedded_plane(directory) as embedded:
            yield embedded
        return
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    async with real_plane(directory, audit=True) as real:
        yield real


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """The administrator's requests; Websites and Gadgets are defined."""
    async with api_from(plane.kubeconfig) as admin:
        for definition in (SITES, GADGETS):
            await define(admin, definition)
        yield admin


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(api: Api) -> str:
    """A fresh namespace."""
    name = f"contract-{secrets.token_hex(4)}"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).check(201)
    return name


@pytest.fixture
def sites(namespace: str) -> str:
    """Path of the Websites of a fresh namespace: namespaced, with a status subresource and a schema."""
    return f"/apis/example.com/v1/namespaces/{namespace}/websites"


@pytest.fixture
def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def secrets_(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


@pytest.fixture
def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
