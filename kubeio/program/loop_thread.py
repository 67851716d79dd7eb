"""A thread with an event loop of its own: what must go on while the main loop is blocked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

Main = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs *main* to its end, on a daemon thread. *on_error* gets what it raised, on that thread."""

    def __init__(self, main: Main, *, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._main: Final = main
        self._on_error: Final = on_error
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: Final = threading.Event()

    def start(self) -> None:
        """Begin; returns once *main* waits for the first time, or has ended."""
        self._thread.start()
        self._begun.wait()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call *function* on the thread's loop, soon; not at all if the thread has ended or was not started."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function, *args)

    async def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, *timeout_s* at most."""
        await asyncio.to_thread(self._thread.join, timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._begin())
        except BaseException as error:
            self._on_error(error)
        finally:
            self._begun.set()

    async def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._begun.set)
        await self._main()
