"""Scripted servers behind the relay."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kubeio.http.wire_server import WireServer


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    """A server without TLS that follows the script a test gives it."""
    async with WireServer(None) as running:
        yield running
