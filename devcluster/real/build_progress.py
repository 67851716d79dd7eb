"""Progress of a build: nothing, plain lines when piped, or one updated line on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from rich.console import Console

_LINE_EVERY_S = 30.0


class BuildProgress(Protocol):
    def waiting(self) -> None:
        """Another process builds; we wait for it."""

    def building(self, name: str, *, number: int, of: int) -> AbstractContextManager[None]:
        """Scope of the build of *name*."""

    def tick(self) -> None:
        """About once a second within the scope."""


class SilentProgress:
    """Prints nothing."""

    def waiting(self) -> None:
        return

    def building(self, name: str, *, number: int, of: int) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def tick(self) -> None:
        return


class ConsoleProgress:
    """Prints to standard error which program is built, of how many, and for how long."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = self._console.status("") if self._console.is_terminal else None
        self._what = ""
        self._began_at = self._said_at = time.monotonic()

    def waiting(self) -> None:
        self._console.print("another build is under way: waiting for it")

    @contextlib.contextmanager
    def building(self, name: str, *, number: int, of: int) -> Iterator[None]:
        self._what = f"building {name} ({number} of {of})"
        self._began_at = self._said_at = time.monotonic()
        with self._live or contextlib.nullcontext():
            if self._live is None:
                self._console.print(self._what)
            yield
        self._console.print(f"built {name} ({number} of {of}) in {self._elapsed_s():.0f} s")

    def tick(self) -> None:
        line = f"{self._what}, {self._elapsed_s():.0f} s"
        if self._live is not None:
            self._live.update(line)
        elif time.monotonic() - self._said_at >= _LINE_EVERY_S:
            self._said_at = time.monotonic()
            self._console.print(line)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_at
