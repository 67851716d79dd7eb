"""Helm and a real control plane for the tests of the chart; both may be missing, and then the reason is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.binaries import find_binaries, helm_recipe
from devcluster.real.real_plane import RealPlane
from ringleader.testing.client import IndependentClient
from ringleader.testing.single_task import single_task
from tests.chart.guarded import Guarded, guarded_plane
from tests.chart.helm import Helm
from tests.chart.running_pods import Pods, running_pods


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    try:
        return find_binaries(["helm"], helm_recipe())["helm"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RealPlane]:
    """etcd, kube-apiserver with RBAC, and kube-controller-manager: garbage, namespaces, `CONTROLLERS` of the module."""
    controllers = getattr(request.module, "CONTROLLERS", ())
    directory = tmp_path_factory.mktemp("plane")
    try:
        async with single_task(real_plane(directory, audit=True, controllers=controllers)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: RealPlane) -> AsyncIterator[IndependentClient]:
    async with IndependentClient(plane.kubeconfig) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pods(
    plane: RealPlane, admin: IndependentClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pods]:
    """What runs the pods of the module's `CONTROLLERS`."""
    async with running_pods(plane.kubeconfig, admin, tmp_path_factory.mktemp("pods")) as pods:
        yield pods


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    request: pytest.FixtureRequest,
    plane: RealPlane,
    admin: IndependentClient,
    helm_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    """The chart, installed with the `VALUES` of the module, its policies in force."""
    helm = Helm(helm_binary, tmp_path_factory.mktemp("guard"), plane.kubeconfig)
    async with guarded_plane(plane, admin, helm, request.module.VALUES) as guarded:
        yield guarded


@pytest.fixture
def renderer(helm_binary: Path, tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    return Helm(helm_binary, tmp_path)


@pytest.fixture
def helm(helm_binary: Path, tmp_path: Path, plane: RealPlane) -> Helm:
    """Helm as the cluster's administrator."""
    return Helm(helm_binary, tmp_path, plane.kubeconfig)
