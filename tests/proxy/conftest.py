"""Scripted servers behind the relay, and runs of a controller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devcluster.embedded import EmbeddedPlane
from tests.kubeio.http.wire_server import WireServer
from tests.proxy.runs_bench import RunsBench, runs_bench


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    """A server without TLS that follows the script a test gives it."""
    async with WireServer(None) as running:
        yield running


@pytest.fixture
async def bench(new_plane: EmbeddedPlane) -> AsyncIterator[RunsBench]:
    async with runs_bench(new_plane) as running:
        yield running
