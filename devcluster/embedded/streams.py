"""One open watch on its connection: sends lines in chunks, and ends watches of clients that are too slow.

Owns lines that are not sent yet. Events come from the collection, bookmarks from `server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from devcluster.embedded.status import Refusal
from devcluster.embedded.store import Entry, Event
from devcluster.embedded.watches import Watch, error_line

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    b"Cache-Control: no-cache, private\r\n\r\n"
)
_LAST_BOOKMARK_S: Final = 2.0
"""So long before its time is over a watch gets a last bookmark."""
_BATCH: Final = 200
_MAX_WAITING_BYTES: Final = 32 * 1024 * 1024


class WatchStream:
    """Runs from `start` to `close`. All methods are called on the event loop."""

    def __init__(
        self,
        watch: Watch,
        transport: asyncio.WriteTransport,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self.watch: Final = watch
        self._transport: Final = transport
        self._on_end: Final = on_end
        self._loop: Final = asyncio.get_running_loop()
        self._initial: Iterator[Entry] | None = None
        self._began_at = 0
        self._initial_version = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._paused = False
        self._scheduled = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_bookmark: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Answer the request and begin. A version that is gone ends the stream with an ERROR line."""
        self._transport.write(_HEAD)
        collection = self.watch.target.kind.collection
        try:
            initial, missed = self.watch.start()
        except Refusal as refusal:
            self._send(error_line(refusal))
            self.close()
            return
        self._began_at = int(self.watch.version or 0) or collection.versions.current
        self._initial_version = collection.versions.current
        collection.listeners.append(self._on_event)
        collection.end_listeners.append(self.close)
        if self.watch.timeout_s:
            self._timer = self._loop.call_later(self.watch.timeout_s, self.close)
            last = max(0.0, self.watch.timeout_s - _LAST_BOOKMARK_S)
            self._last_bookmark = self._loop.call_later(last, self.bookmark)
        if initial or self.watch.send_initial:
            self._initial = iter(initial)
        for event in missed:
            self._on_event(event)
        self._schedule()

    def bookmark(self) -> None:
        """Send a bookmark, if the client wants bookmarks and has every event.

        Like the real server, silent until the resource has something newer than the beginning of the watch,
        unless the watch began with a list.
        """
        version = self.watch.target.kind.collection.confirmed
        newer = version > self._began_at or self.watch.send_initial
        if self.watch.bookmarks and self._initial is None and newer:
            self._put(self.watch.bookmark(version))

    def close(self) -> None:
        """End the answer properly; the connection stays usable."""
        if self._closed:
            return
        self._flush()
        self._transport.write(b"0\r\n\r\n")
        self.abandon()
        self._on_end()

    def abandon(self) -> None:
        """Stop without another byte: the connection is gone."""
        self._closed = True
        for timer in (self._timer, self._last_bookmark):
            if timer is not None:
                timer.cancel()
        collection = self.watch.target.kind.collection
        if self._on_event in collection.listeners:
            collection.listeners.remove(self._on_event)
            collection.end_listeners.remove(self.close)

    @property
    def closed(self) -> bool:
        return self._closed

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def _on_event(self, event: Event) -> None:
        line = self.watch.line(event)
        if line is not None:
            self._put(line)

    def _put(self, line: bytes) -> None:
        if self._closed:
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            self.abandon()
            self._transport.abort()
            return
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed or self._paused:
            return
        if self._initial is not None:
            self._pump_initial(self._initial)
        else:
            self._flush()

    def _pump_initial(self, initial: Iterator[Entry]) -> None:
        batch = [self.watch.added(entry) for entry in islice(initial, _BATCH)]
        if batch:
            self._send(b"".join(batch))
        else:
            self._initial = None
            if self.watch.send_initial:
                self._send(self.watch.bookmark(self._initial_version, initial_end=True))
        self._schedule()

    def _flush(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._send(data)

    def _send(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
