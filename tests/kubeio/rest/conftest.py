"""Every test of this folder runs on asyncio's own loop and on uvloop, against real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import trustme
import uvloop

from tests.kubeio.rest.wire_server import Tls, WireServer


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def tls() -> Tls:
    """A CA, and what a server on loopback shows."""
    return Tls(trustme.CA())


@pytest.fixture
async def server(tls: Tls) -> AsyncIterator[WireServer]:
    """A TLS server that follows the script a test gives it."""
    async with WireServer(tls) as running:
        yield running


@pytest.fixture
async def plain_server() -> AsyncIterator[WireServer]:
    """The same without TLS."""
    async with WireServer(None) as running:
        yield running
