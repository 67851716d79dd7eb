"""What the tests of the commands stand on: a control plane in memory, and what a test does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.embedded import embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from tests.sharder.io.ground import Ground


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with (
        embedded_plane(tmp_path / "plane") as plane,
        Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
    ):
        ground = Ground(plane, client)
        await ground.install()
        yield ground
        await ground.close()
