"""A sharder's probes port with what it publishes, and a client without a browser: requests, and events as documents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from kubeio.clock import SystemClock
from kubeio.program.access_gate import AccessGate, Asks
from kubeio.program.http_server import HttpServer
from kubeio.program.pages import GuardedPages
from kubeio.program.probes import FLAG, Probes
from kubeio.rest.reviews import User
from sharder.live.state import LiveState
from sharder.live.stream import EVENTS, RIGHT, LiveStream
from tests.sharder.io.environment import running


class OneToken:
    """An API server that accepts the token `good`, whose account may get *path*, and `poor`, whose account may not."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def bearer(self, token: str) -> User | None:
        return User(username=token) if token in ("good", "poor") else None

    async def may(self, user: User, *, verb: str, path: str) -> bool:
        return (user.username, verb, path) == ("good", "get", self._path)


@asynccontextmanager
async def published(
    state: LiveState, *, reviews: Asks | None = None, bind: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[HttpServer]:
    """The probes port of a sharder that publishes *state*."""
    stream = LiveStream(state)
    gate = AccessGate(reviews or OneToken(RIGHT), path=RIGHT, clock=SystemClock())
    probes = Probes(CollectorRegistry(), {}, guarded=GuardedPages(gate, stream.pages()))
    async with HttpServer(bind, port, probes.answer, flag=FLAG) as server, running(stream.run()):
        yield server


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


async def get(at: HasPort, target: str, *, headers: str = "") -> tuple[int, str, bytes]:
    """Status, head and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


async def ask(at: HasPort, target: str) -> tuple[int, dict[str, Any]]:
    status, _, body = await get(at, target)
    return status, json.loads(body)


class Events:
    """Events of one stream, in their order."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> tuple[str, dict[str, Any], int]:
        """Name, document and size of the next event."""
        block = await asyncio.wait_for(self._reader.readuntil(b"\n\n"), 10)
        name, data = block.decode().strip().split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: ")), len(block)

    async def until(self, wanted: str) -> dict[str, Any]:
        """The next event called *wanted*."""
        while True:
            name, document, _ = await self.next()
            if name == wanted:
                return document

    async def change(self) -> dict[str, Any]:
        return await self.until("change")


@asynccontextmanager
async def listening(at: HasPort, path: str = EVENTS) -> AsyncIterator[Events]:
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port, limit=10_000_000)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        yield Events(reader)
    finally:
        writer.close()
