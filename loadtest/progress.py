"""How a run shows where it is: one bar on stderr for what is under way, lines that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


class Console:
    """Progress on stderr; lines only, if *is_quiet* not even these."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._console = RichConsole(stderr=True, quiet=is_quiet)

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar with a rate, where stderr is a terminal; the block moves it on."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate()
        is_shown = self._console.is_terminal and not self._console.quiet
        with Progress(*columns, console=self._console, transient=True, disable=not is_shown) as progress:
            task = progress.add_task(what, total=total)
            yield lambda more: progress.advance(task, more)
