"""How a run tells people where it is: one bar on stderr for what is under way, lines that stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.measuring.sightings import NotSeen

_POLL_S: Final = 0.05


class Meter:
    """Progress on stderr: one bar for what is under way."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._console = console

    def __enter__(self) -> Meter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def counting(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A bar that the block moves on."""
        task = self._progress.add_task(what, total=total)
        try:
            yield lambda more: self._progress.advance(task, more)
        finally:
            self._progress.remove_task(task)

    async def follow(
        self, what: str, total: int, done: Callable[[], int], *, stalls_after_s: float = 30.0
    ) -> None:
        """Wait until *done* gives *total*. Raises: NotSeen when it does not grow for *stalls_after_s*."""
        loop = asyncio.get_running_loop()
        task = self._progress.add_task(what, total=total)
        reached, grown_at = done(), loop.time()
        try:
            while (now_done := done()) < total:
                if now_done > reached:
                    reached, grown_at = now_done, loop.time()
                elif loop.time() - grown_at > stalls_after_s:
                    raise NotSeen(f"{what}: {reached} of {total}, and nothing for {stalls_after_s:g} s")
                self._progress.update(task, completed=now_done)
                await asyncio.sleep(_POLL_S)
        finally:
            self._progress.remove_task(task)
