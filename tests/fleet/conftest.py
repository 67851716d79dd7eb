"""Fleets of real processes on both control planes, and the judgement that ends every test.

Tests of one module share one fleet of three replicas; each begins and ends with all objects in their places.
Reconcilers wait a random 0 to 200 ms while a client updates objects 20 times a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.plugin import plane_context
from ringleader.testing.single_task import single_task

OBJECTS = 80
UPDATES_PER_S = 20.0
REPLICAS = 3


@pytest.fixture(scope="module")
def has_faults() -> bool:
    """Whether the module's control plane stands behind a fault proxy; modules override it."""
    return False


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.alone])],
)
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, has_faults: bool
) -> AsyncIterator[ControlPlane]:
    directory: Path = tmp_path_factory.mktemp(f"plane-{request.param}")
    try:
        async with single_task(
            plane_context(directory, is_real=request.param == "real", faults=has_faults)
        ) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.fixture(scope="module")
def fleet_spec() -> FleetSpec:
    """What the module's fleet is made of; modules override it."""
    return FleetSpec(lease_s=2, settle_s=1, environment={WAIT_MS: "0-200"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    plane: ControlPlane, fleet_spec: FleetSpec, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    """Three replicas, two sharders, 80 objects, 20 updates a second."""
    async with single_task(_working_fleet(plane, fleet_spec, tmp_path_factory.mktemp("fleet"))) as fleet:
        yield fleet


@asynccontextmanager
async def _working_fleet(plane: ControlPlane, spec: FleetSpec, directory: Path) -> AsyncIterator[Fleet]:
    async with open_fleet(plane, directory, spec=spec) as fleet:
        await fleet.start(replicas=REPLICAS)
        await fleet.objects.create_many(OBJECTS)
        await fleet.wait_converged()
        async with asyncio.TaskGroup() as tasks:
            updates = fleet.objects.run_updates(per_s=UPDATES_PER_S, rng=random.Random(7))
            traffic = tasks.create_task(updates, name="updates")
            yield fleet
            traffic.cancel()
