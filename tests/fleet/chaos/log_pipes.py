"""The logs of replicas as pipes: what is read goes to the log's file; a pipe that is not read is full.

Owns the reading ends. A replica writes to its pipe by `PIPED`, the command line in front of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path

_BYTES = 4096
"""The smallest pipe there is."""


def piped(directory: Path) -> tuple[str, ...]:
    """The command line in front of a replica's own that sends its stderr into its pipe in *directory*."""
    return ("/bin/bash", "-c", 'exec "$@" 2>>"$0"', str(directory / "{member}.pipe"))


class LogPipe:
    """The pipe of *member* in *directory*; read from now on."""

    def __init__(self, directory: Path, member: str) -> None:
        path = directory / f"{member}.pipe"
        os.mkfifo(path, mode=0o600)
        self._fd = os.open(
            path, os.O_RDWR | os.O_NONBLOCK
        )  # both ends, so that no writer ever waits for a reader
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _BYTES)
        self._log = (directory / f"{member}.log").open("ab", buffering=0)
        self.read()

    def read(self) -> None:
        asyncio.get_running_loop().add_reader(self._fd, self._take)

    def block(self) -> None:
        """Read no more, and fill the pipe: from now on each write to it waits."""
        asyncio.get_running_loop().remove_reader(self._fd)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self._fd, b"\n")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._log.close()

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._log.write(os.read(self._fd, 65536))
