"""A bench of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.embedded import EmbeddedPlane
from tests.shard_controller.bench import Bench, open_bench


@pytest.fixture
async def bench(new_plane: EmbeddedPlane, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(new_plane, tmp_path) as bench:
        yield bench
