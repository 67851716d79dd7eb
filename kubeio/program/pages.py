"""Pages that are computed when they are asked for, and streams, for clients that an access gate admits.

Knows neither sockets (`kubeio.program.http_server`) nor who is admitted (`kubeio.program.access_gate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kubeio.program.http_server import HttpRequest, Reply, ServerConnection, Stream

if TYPE_CHECKING:
    from kubeio.program.access_gate import AccessGate

JSON: Final = "application/json"
NO_PAGE: Final = Reply(404, b"no such page\n")
REVIEW_S: Final = 30.0
"""A stream outlives the revocation of its client's token by this, and by the time for which the gate's answer holds."""

Page = Callable[[list[str]], Awaitable[Reply | Stream]]
"""Answers for the parts of the path below the page's own."""


def json_page(content: Callable[[list[str]], bytes | None]) -> Page:
    """Page of the JSON that *content* gives for the parts below the page's own; None: a 404."""

    async def page(below: list[str]) -> Reply:
        body = content(below)
        return NO_PAGE if body is None else Reply(200, body, JSON)

    return page


class GuardedPages:
    """Pages by the path that they begin with, the longest one first, for clients that *gate* admits."""

    def __init__(self, gate: AccessGate, pages: Mapping[str, Page]) -> None:
        self._gate: Final = gate
        self._pages: Final = pages

    async def answer(self, request: HttpRequest) -> Reply | Stream:
        # each part is decoded by itself: a name may contain the separator
        parts = [unquote(part) for part in request.path.removeprefix("/").split("/")]
        found = self._find(parts)
        if found is None:
            return NO_PAGE
        refusal = await self._gate.refusal(request)
        if refusal is not None:
            return refusal
        page, below = found
        answer = await page(below)
        if isinstance(answer, Reply):
            return answer
        return Stream(answer.content_type, partial(self._send, request, answer))

    async def _send(self, request: HttpRequest, stream: Stream, connection: ServerConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            reviews = tasks.create_task(self._review(request, connection), name="review of a stream's client")
            await stream.send(connection)
            reviews.cancel()

    async def _review(self, request: HttpRequest, connection: ServerConnection) -> None:
        """Cut *connection* once its client is no longer admitted; while the API server cannot be asked it stays."""
        while True:
            await asyncio.sleep(REVIEW_S)
            refusal = await self._gate.refusal(request)
            if refusal is not None and refusal.status in (401, 403):
                connection.abort()

    def _find(self, parts: list[str]) -> tuple[Page, list[str]] | None:
        for size in range(len(parts), 0, -1):
            page = self._pages.get("/" + "/".join(parts[:size]))
            if page is not None:
                return page, parts[size:]
        return None
