"""Streams of the page: the whole document for each new viewer, then the changes, the same for all.

Owns the viewers and the state that they were sent. Without a viewer nothing is computed. A browser that does not fetch
its events gets the whole document when it is back, and nothing before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kubeio.program.http_server import Reply, ServerConnection, Stream
from sharder.page.frames import Document, changes, event

if TYPE_CHECKING:
    from sharder.page.board import Board

PERIOD_S: Final = 0.1
"""Ten frames a second at most."""
BEAT_S: Final = 2.0
"""Longest silence of a stream; after three of them a page says that it lost the server."""
VIEWERS: Final = 16
_EVENTS: Final = "text/event-stream; charset=utf-8"


class Live:
    """Streams of *board*. `run` lasts until cancelled; `serve` until its viewer leaves."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._viewers: dict[ServerConnection, bool] = {}
        """Whether each has missed something."""
        self._came = asyncio.Event()
        self._last: dict[str, Document] = {}

    def open(self) -> Reply | Stream:
        """A stream for one more viewer."""
        if len(self._viewers) >= VIEWERS:
            return Reply(503, b"too many look at this page\n")
        return Stream(_EVENTS, self.serve)

    async def serve(self, connection: ServerConnection) -> None:
        """Send to one viewer until cancelled."""
        if not self._viewers:
            self._last = self._board.now()
            self._board.fresh()  # drop what happened without a viewer
        connection.push(self._picture())
        self._viewers[connection] = False
        self._came.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._viewers.pop(connection, None)

    async def run(self) -> None:
        """Send changes to all viewers."""
        silent_s = 0.0
        while True:
            self._came.clear()
            if not self._viewers:
                await self._came.wait()
            await asyncio.sleep(PERIOD_S)
            silent_s += PERIOD_S
            frame = self.frame(is_beat=silent_s >= BEAT_S)
            if frame:
                silent_s = 0.0
                self._send(frame)

    def frame(self, *, is_beat: bool = False) -> bytes:
        """Event with the changes since the last frame; without changes a `beat` with *is_beat*, else nothing."""
        rings = self._board.now()
        document = changes(self._last, rings)
        self._last = rings
        if fresh := self._board.fresh():
            document["fresh"] = fresh
        if not document and not is_beat:
            return b""
        return event("change" if document else "beat", {"at": self._board.at(), **document})

    def _send(self, frame: bytes) -> None:
        for connection, has_missed in list(self._viewers.items()):
            if connection.is_backed_up:
                self._viewers[connection] = True
            elif has_missed:
                self._viewers[connection] = False
                connection.push(self._picture())
            else:
                connection.push(frame)

    def _picture(self) -> bytes:
        return event("picture", self._board.picture(self._last))
