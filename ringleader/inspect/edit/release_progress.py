"""Progress of releasing a ring: from its objects at the beginning, and from the counter in the ring's status.

Owns the arithmetic and the words, and shows both on stderr: a bar on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ringleader.inspect.status.layout import duration
from sharder.rings.settling_pace import SettlingPace

LOOKS: Final = 60
"""A pace is that of the last minute: one look a second."""
PATIENCE_S: Final = 10.0
"""A sharder that reports its progress does so before."""
EVERY_S: Final = 10.0
"""Between two lines."""


@dataclass(slots=True)
class ReleaseProgress:
    """Progress of releasing *total* objects. *counter*: `status.released` when they were counted, None if absent."""

    total: int
    counter: int | None
    began_at: float
    done: int = 0
    _pace: SettlingPace = field(default_factory=lambda: SettlingPace(looks=LOOKS))

    def look(self, at: float, counter: int | None) -> None:
        """At *at* the ring's status has *counter*; a smaller one than before was begun anew by another sharder."""
        if counter is None:
            return
        before = self.counter or 0
        self.done += counter - before if counter >= before else counter
        self.counter = counter
        self.total = max(self.total, self.done)
        self._pace.look(at, self.total - self.done)

    @property
    def is_reported(self) -> bool:
        """Whether the sharder reports its progress; an older one does not."""
        return self.counter is not None

    def text(self, at: float) -> str:
        """The progress for people; empty while none is known."""
        if not self.is_reported:
            waited_s = at - self.began_at
            text = f"waiting for {duration(waited_s)}; the sharder does not report its progress"
            return text if waited_s >= PATIENCE_S else ""
        far = f"{self.done:,} of {self.total:,} objects given up"
        if self.done == self.total:
            return f"{far}; the ring goes when no replica holds a Lease"
        left_s, per_s = self._pace.left_s, self._pace.per_s
        if not left_s or not per_s:
            return far
        rate = f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.1f}"
        return f"{far} ({rate}/s, about {duration(left_s)} left)"


Show = Callable[[ReleaseProgress, float], None]


class ProgressLines:
    """A line at most every `EVERY_S`, and none while nothing changes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next_at = 0.0
        self._written_done: int | None = None

    def show(self, progress: ReleaseProgress, at: float) -> None:
        text = progress.text(at)
        is_old = progress.is_reported and progress.done == self._written_done
        if not text or is_old or at < self._next_at:
            return
        self._write(f"{text}\n")
        self._next_at = at + EVERY_S
        self._written_done = progress.done if progress.is_reported else None


@contextmanager
def showing_progress() -> Iterator[Show]:
    """The function to call with the progress, look by look."""
    if not sys.stderr.isatty():
        yield ProgressLines(sys.stderr.write).show
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(progress: ReleaseProgress, at: float) -> None:
            total = max(progress.total, 1) if progress.is_reported else None
            bar.update(task, total=total, completed=progress.done, description=progress.text(at))

        yield show
