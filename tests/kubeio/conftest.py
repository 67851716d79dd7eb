"""Control planes for the tests of kubeio that need a real server, each started once; and scripted HTTP servers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from devcluster.embedded import EmbeddedPlane, embedded_plane
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.resource import NAMESPACES
from kubeio.rest.client import Client
from tests.kubeio.http.wire_server import Tls, WireServer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPlane]:
    """The embedded one, with a short history and frequent bookmarks: for faults."""
    directory: Path = tmp_path_factory.mktemp("embedded")
    async with embedded_plane(directory, bookmark_interval_s=0.5, history=200) as plane:
        yield plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """kube-apiserver and etcd, where they are."""
    async with AsyncExitStack() as stack:
        try:
            plane = await stack.enter_async_context(real_plane(tmp_path_factory.mktemp("real")))
        except BinariesMissing as missing:
            pytest.skip(f"{missing.reason}; {missing.remedy}")
        yield plane


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def plane(request: pytest.FixtureRequest) -> ControlPlane:
    """Both, one after the other."""
    chosen: ControlPlane = request.getfixturevalue(request.param)
    return chosen


@pytest_asyncio.fixture(loop_scope="session")
async def admin(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        yield client


@pytest.fixture(scope="session")
def tls() -> Tls:
    """A CA, and what a server on loopback shows."""
    return Tls(trustme.CA())


@pytest.fixture
async def server(tls: Tls) -> AsyncIterator[WireServer]:
    """A TLS server that follows the script a test gives it."""
    async with WireServer(tls) as running:
        yield running


@pytest.fixture
async def plain_server() -> AsyncIterator[WireServer]:
    """The same without TLS."""
    async with WireServer(None) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(admin: Client) -> str:
    """A new one, on the plane of this test."""
    name = f"test-{secrets.token_hex(4)}"
    await admin.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)
    return name
