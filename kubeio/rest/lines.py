"""Lines of a watch, cut out of bytes that arrive in pieces of any size. Pure; called by `kubeio.rest.line_stream`."""

from __future__ import annotations

from typing import Final

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""No event is larger: the server refuses objects of more than a few MiB."""


class LineTooLong(ValueError):
    """More than `MAX_LINE_BYTES` came without a newline."""


class LineSplitter:
    """Gives whole lines, without their newline; empty lines are skipped."""

    __slots__ = ("_max_line_bytes", "_pieces", "_pieces_bytes")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that *chunk* completes. Raises LineTooLong."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            lines[0] = b"".join(self._pieces) + lines[0]
            self._pieces.clear()
            self._pieces_bytes = 0
        if rest:
            self._pieces.append(rest)
            self._pieces_bytes += len(rest)
            if self._pieces_bytes > self._max_line_bytes:
                raise LineTooLong(f"a line of more than {self._max_line_bytes} bytes")
        return [line for line in lines if line]

    def rest(self) -> bytes:
        """Bytes after the last newline; empty if there are none."""
        return b"".join(self._pieces)
