"""What the tests of the commands stand on: a control plane in memory, and what a test does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sharder.io.ground import Ground, open_ground


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with open_ground(tmp_path) as ground:
        yield ground
