"""How a run shows where it is: one bar on stderr for what is under way, lines that stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

_LINE_EVERY_S: Final = 15.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


class Console:
    """Progress on stderr."""

    def __init__(self) -> None:
        self._console = RichConsole(stderr=True)

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar with a rate that the block moves on; lines now and then where stderr is no terminal."""
        if not self._console.is_terminal:
            yield self._lines(what, total)
            return
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate()
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(what, total=total or None)
            yield lambda more: progress.advance(task, more)

    def _lines(self, what: str, total: int) -> Callable[[int], None]:
        done, began = 0, time.monotonic()
        said_at = began

        def tick(more: int) -> None:
            nonlocal done, said_at
            done += more
            now = time.monotonic()
            if now - said_at > _LINE_EVERY_S:
                said_at = now
                of = f" of {total:,}" if total else ""
                self.say(f"{what}: {done:,}{of}, {done / (now - began):,.0f} a second")

        return tick
