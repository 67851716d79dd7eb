"""A ward of its own for every test: each breaks it in another way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from devcluster.embedded import EmbeddedPlane
from tests.ringleader.check.ward import Ward, open_ward


@pytest_asyncio.fixture
async def ward(new_plane: EmbeddedPlane) -> AsyncIterator[Ward]:
    async with open_ward(new_plane) as ward:
        yield ward
