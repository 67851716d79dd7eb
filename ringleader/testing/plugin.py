"""pytest fixtures for users' tests: `control_plane` and `fleet`.

Put `pytest_plugins = ["ringleader.testing.plugin"]` into conftest.py. Everything runs in real processes, on the
embedded control plane; mark a test `real` to run it on kube-apiserver and etcd. Needs pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, real_plane
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.single_task import single_task


def plane_context(
    directory: Path, *, is_real: bool, faults: bool = False
) -> AbstractAsyncContextManager[ControlPlane]:
    """An embedded or a real control plane in *directory*, with *faults* behind a fault proxy."""
    if not is_real:
        from devcluster.embedded import embedded_plane

        return embedded_plane(directory, faults=faults)
    return real_plane(directory, audit=True, faults=faults)


@pytest_asyncio.fixture
async def control_plane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """An API server of the test's own, behind a fault proxy; a real one if the test is marked `real`."""
    is_real = request.node.get_closest_marker("real") is not None
    try:
        async with single_task(plane_context(tmp_path / "plane", is_real=is_real, faults=True)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.fixture
def fleet_spec() -> FleetSpec:
    """What `fleet` is made of; override it to change that."""
    return FleetSpec(lease_s=2)


@pytest_asyncio.fixture
async def fleet(control_plane: ControlPlane, fleet_spec: FleetSpec, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet without replicas yet: `await fleet.start("controller.py:websites", replicas=3)`."""
    async with single_task(open_fleet(control_plane, tmp_path / "fleet", spec=fleet_spec)) as fleet:
        yield fleet
