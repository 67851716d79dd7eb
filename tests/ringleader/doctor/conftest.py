"""A ward of its own for every test: each breaks it in another way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.ringleader.doctor.ward import Ward, open_ward


@pytest_asyncio.fixture
async def ward(tmp_path: Path) -> AsyncIterator[Ward]:
    async with open_ward(tmp_path / "plane") as ward:
        yield ward
