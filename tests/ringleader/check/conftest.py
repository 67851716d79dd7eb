"""An environment of its own for every test: each breaks it in another way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from devcluster.embedded import EmbeddedPlane
from tests.ringleader.check.environment import CheckEnvironment, open_environment


@pytest_asyncio.fixture
async def env(new_plane: EmbeddedPlane) -> AsyncIterator[CheckEnvironment]:
    async with open_environment(new_plane) as env:
        yield env
