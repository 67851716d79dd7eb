"""A page's client without a browser: requests, and the stream as documents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sharder.page.service import LivePage


async def get(page: LivePage, target: str, *, headers: str = "") -> tuple[int, str, bytes]:
    """Status, head and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


async def ask(page: LivePage, target: str) -> tuple[int, dict[str, Any]]:
    status, _, body = await get(page, target)
    return status, json.loads(body)


class Events:
    """What comes over one stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> tuple[str, dict[str, Any], int]:
        """Name, document and size of the next event."""
        block = await asyncio.wait_for(self._reader.readuntil(b"\n\n"), 10)
        name, data = block.decode().strip().split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: ")), len(block)

    async def change(self) -> dict[str, Any]:
        """The next event that is a change."""
        while True:
            name, document, _ = await self.next()
            if name == "change":
                return document


@asynccontextmanager
async def listening(page: LivePage) -> AsyncIterator[Events]:
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port, limit=10_000_000)
    try:
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        yield Events(reader)
    finally:
        writer.close()
