"""`/debug/rings` and its stream: the whole document for each new viewer, then the changes, the same for all.

Owns the viewers and the state that they were sent. Without a viewer nothing is computed. A viewer that does not fetch
its events gets the whole document once it reads again, and nothing before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.program.http_server import Reply, ServerConnection, Stream
from kubeio.program.pages import NO_PAGE, Page, json_page
from sharder.live.frames import Document, changes, event

if TYPE_CHECKING:
    from sharder.live.state import LiveState

RIGHT: Final = "/debug/rings"
"""The document's path; also the nonResourceURL that a token's account must be allowed to get."""
EVENTS: Final = f"{RIGHT}/events"
PERIOD_S: Final = 0.1
"""Ten frames a second at most."""
HEARTBEAT_S: Final = 2.0
"""Longest silence of a stream; after three of them a viewer says that it lost the sharder."""
VIEWERS: Final = 16
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


class LiveStream:
    """Publishes *state*. `run` sends until cancelled; `serve` lasts until its viewer leaves."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._viewers: dict[ServerConnection, bool] = {}
        """Whether each has missed something."""
        self._came = asyncio.Event()
        self._last: dict[str, Document] = {}

    def pages(self) -> dict[str, Page]:
        """The document and the stream, by path."""
        return {RIGHT: json_page(self._document), EVENTS: self._open}

    async def serve(self, connection: ServerConnection) -> None:
        """Send to one viewer until cancelled."""
        if not self._viewers:
            self._last = self._state.rings()
            self._state.fresh()  # drop what happened without a viewer
        connection.push(self._snapshot())
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
            frame = self.frame(is_due=silent_s >= HEARTBEAT_S)
            if frame:
                silent_s = 0.0
                self._send(frame)

    def frame(self, *, is_due: bool = False) -> bytes:
        """Event with the changes since the last frame; without changes a `heartbeat` if it *is_due*, else nothing."""
        rings = self._state.rings()
        document = changes(self._last, rings)
        self._last = rings
        if fresh := self._state.fresh():
            document["fresh"] = fresh
        if not document and not is_due:
            return b""
        return event("change" if document else "heartbeat", {"at": self._state.at(), **document})

    def _document(self, below: list[str]) -> bytes | None:
        return None if below else msgspec.json.encode(self._state.document())

    async def _open(self, below: list[str]) -> Reply | Stream:
        if below:
            return NO_PAGE
        if len(self._viewers) >= VIEWERS:
            return Reply(503, f"{VIEWERS} viewers are connected, which is the limit\n".encode())
        return Stream(EVENT_STREAM, self.serve)

    def _send(self, frame: bytes) -> None:
        for connection, has_missed in list(self._viewers.items()):
            if connection.is_backed_up:
                self._viewers[connection] = True
            elif has_missed:
                self._viewers[connection] = False
                connection.push(self._snapshot())
            else:
                connection.push(frame)

    def _snapshot(self) -> bytes:
        return event("snapshot", self._state.document(self._last))
