"""Writes log lines on a thread of its own: logging never waits for the reader.

A log without a reader (a full pipe, a full disk) must not keep a process alive, nor hold its loops up. Owns the
lines that are not written yet and the count of those that were dropped.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_PENDING_BYTES: Final = 1024 * 1024
"""Lines that wait for their reader; what comes beyond is dropped. A busy replica logs a few KB a second."""


class LogWriter:
    """A text file for loggers: `write` takes a whole line and returns at once.

    *fd* is written to by one thread, which begins with the first line. *on_resumed* is called on that thread, with
    the number of lines dropped since the last call, as soon as a line can be written again.
    """

    def __init__(
        self,
        fd: int,
        *,
        on_resumed: Callable[[int], None],
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self.dropped = 0
        """Lines that were never written."""
        self._fd = fd
        self._on_resumed = on_resumed
        self._max_pending_bytes = max_pending_bytes
        self._lines: deque[bytes] = deque()
        self._pending_bytes = 0  # of all that is not written, the line under way included
        self._unreported = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Have *text* written, or drop it if too much waits."""
        line = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._pending_bytes + len(line) > self._max_pending_bytes:
                self._drop()
                return len(text)
            self._lines.append(line)
            self._pending_bytes += len(line)
            if self._thread is None or not self._thread.is_alive():  # it does not outlive a fork
                self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Nothing: `drain` waits."""

    def drain(self, *, within_s: float) -> bool:
        """Wait until all is written, *within_s* at most; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending_bytes == 0, within_s)

    def _drop(self) -> None:
        self.dropped += 1
        self._unreported += 1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            is_written = self._write_out(line)
            with self._changed:
                self._pending_bytes -= len(line)
                if not is_written:
                    self._drop()
                unreported = self._unreported if is_written else 0
                self._unreported -= unreported
                self._changed.notify_all()
            if unreported:
                self._on_resumed(unreported)

    def _write_out(self, line: bytes) -> bool:
        """Whether *line* was written, however long that took. A reader that is gone, or a full disk, takes none."""
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return False
        return True
