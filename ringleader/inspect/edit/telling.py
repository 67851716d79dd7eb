"""Shows on stderr how far a release is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ringleader.inspect.edit.course import Course

EVERY_S: Final = 10.0
Tell = Callable[[Course, float], None]


class Lines:
    """A line at most every `EVERY_S`, and none while nothing changes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next_at = 0.0
        self._told_done: int | None = None

    def tell(self, course: Course, at: float) -> None:
        text = course.text(at)
        is_old = course.is_told and course.done == self._told_done
        if not text or is_old or at < self._next_at:
            return
        self._write(f"{text}\n")
        self._next_at = at + EVERY_S
        self._told_done = course.done if course.is_told else None


@contextmanager
def telling() -> Iterator[Tell]:
    """What is called with the course of a release, look by look."""
    if not sys.stderr.isatty():
        yield Lines(sys.stderr.write).tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(course: Course, at: float) -> None:
            total = max(course.total, 1) if course.is_told else None
            bar.update(task, total=total, completed=course.done, description=course.text(at))

        yield tell
