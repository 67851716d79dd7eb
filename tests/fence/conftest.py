"""One real API server with the fence per module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.real_plane import RealPlane
from ringleader.testing.single_task import single_task
from tests.fence.fenced import Fenced, fenced_plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    """etcd and kube-apiserver, with an audit log."""
    try:
        async with single_task(real_plane(tmp_path_factory.mktemp("plane"), audit=True)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fenced(plane: RealPlane) -> AsyncIterator[Fenced]:
    """The policies of the ring `websites` in force."""
    async with fenced_plane(plane) as fenced:
        yield fenced
