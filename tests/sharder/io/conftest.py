"""Control planes behind fault proxies, for the modules whose storms and failures both planes must see."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing
from ringleader.testing.plugin import plane_context


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.alone])],
)
async def faulty_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    is_real = request.param == "real"
    try:
        async with plane_context(tmp_path_factory.mktemp("plane"), is_real=is_real, faults=True) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
