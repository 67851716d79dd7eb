"""Pages that are computed when they are asked for, and streams, for those whom a door admits.

Owns who gets what on a port of its own; sockets and limits are `kubeio.program.listening`'s, who may come in
`kubeio.program.access_gate`'s. Served by `sharder.page`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote

import structlog

from kubeio.program.access_gate import Access, AccessGate, RequestOrigin
from kubeio.program.listening import (
    MAX_CONNECTIONS,
    NOBODY,
    PATIENCE_S,
    TEXT,
    HttpServer,
    Reply,
    ServerConnection,
)
from kubeio.program.server import TURNED_AWAY

_log = structlog.get_logger("kubeio")

Compute = Callable[[list[str]], Awaitable[Reply]]
"""The answer for what stands below a page's own path, one text for each part of it."""
Stream = Callable[[ServerConnection], Awaitable[None]]
"""Sends to one visitor until it is cancelled: when he leaves, or the server ends."""


class PageServer(HttpServer):
    """*home* at `/`, *computed* pages and *streams* by the first part of their path.

    *home* must hold nothing that is not everybody's: to a visitor whom the door does not know it is shown with the
    status 401, so that he can give a token there. Raises InputError naming *flag* if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        *,
        flag: str,
        door: AccessGate,
        home: Reply,
        computed: Mapping[str, Compute],
        streams: Mapping[str, Stream],
        patience_s: float = PATIENCE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(bind, port, flag=flag, patience_s=patience_s, max_connections=max_connections)
        self._door: Final = door
        self._home = home
        self._computed = computed
        self._streams = streams

    def answer(self, method: str, target: str, accept: str, visitor: RequestOrigin = NOBODY) -> Reply | None:
        if method not in ("GET", "HEAD"):
            return Reply(405, TEXT, b"only GET and HEAD\n")
        first, *below = _parts(target)
        if not self._is_there(first, below):
            return Reply(404, TEXT, b"no such page\n")
        entry = self._door.at_once(visitor)
        if entry is Access.ADMITTED:
            return None if first else self._home
        return None if entry is None else self._turned_away(first, entry)

    def ask(self, connection: ServerConnection, target: str, visitor: RequestOrigin) -> asyncio.Task[None]:
        return self._tasks.create_task(self._attend(connection, target, visitor), name="visitor")

    def _is_there(self, first: str, below: list[str]) -> bool:
        return first in self._computed or (not below and (not first or first in self._streams))

    def _turned_away(self, first: str, entry: Access) -> Reply:
        if not first and entry is Access.UNKNOWN:
            return self._home._replace(status=entry.value)
        return Reply(entry.value, TEXT, TURNED_AWAY[entry])

    async def _attend(self, connection: ServerConnection, target: str, visitor: RequestOrigin) -> None:
        first, *below = _parts(target)
        try:
            entry = await self._door.admit(visitor)
            if entry is not Access.ADMITTED:
                connection.answer(self._turned_away(first, entry))
            elif first in self._streams:
                await self._streams[first](connection)
            else:
                connection.answer(await self._compute(first, below))
        except Exception:
            # one visitor must not end the server, nor wait for ever
            _log.exception("visitor not answered", page=first)
            connection.abort()

    async def _compute(self, first: str, below: list[str]) -> Reply:
        if not first:
            return self._home
        try:
            return await self._computed[first](below)
        except Exception as error:
            # whoever asks must get an answer, and the server must go on
            _log.exception("page failed", page=first)
            return Reply(500, TEXT, f"{type(error).__name__}\n".encode())


def _parts(target: str) -> list[str]:
    """The parts of a path, each decoded by itself: a name may contain what separates parts."""
    path = target.partition("?")[0]
    return [unquote(part) for part in path.removeprefix("/").split("/")]
