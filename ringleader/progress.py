"""A bar on stderr while a command reads much; nothing unless stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Called with the number that was *done* since, and the number that is *left*, None if it is not known."""

    def __call__(self, done: int, left: int | None = None) -> None: ...


@contextmanager
def progress(what: str, total: int | None = None, *, shares_output: bool = False) -> Iterator[Advance]:
    """Shows *what* and how far it is. *shares_output*: lines go to stdout meanwhile, so none if that is a terminal."""
    if not sys.stderr.isatty() or (shares_output and sys.stdout.isatty()):
        yield lambda done, left=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: int, left: int | None = None) -> None:
            bar.advance(task, done)
            if left is not None:
                bar.update(task, total=bar.tasks[0].completed + left)

        yield advance
