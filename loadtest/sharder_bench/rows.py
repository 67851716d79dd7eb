"""What a row is asked for, what it gives back, and how it tells people where it is. No measuring here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.sharder_bench.goals import Figure
from loadtest.sharder_bench.sightings import NotSeen, rates

ROWS: Final = ("assign", "new", "leader", "cpu", "takeover", "rest", "join", "term", "restart")
"""In the order in which they run."""
NEED_WRK: Final = frozenset({"assign", "takeover", "join"})
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    objects: int = 100_000
    rows: tuple[str, ...] = ROWS
    is_real: bool = True
    rounds: int = 2
    """How often sharder and wrk alternate in the first assignment."""
    limit_s: float = 25.0
    """Longest run of wrk."""
    connections: int = 64
    samples: int = 200
    """New objects on an idle ring."""
    updates_per_s: int = 500
    updates_s: float = 20.0
    """Length of each half of the row `cpu`."""
    rest_sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    lease_s: int = 15
    """Lease of sharders and replicas."""


class Series(msgspec.Struct, frozen=True):
    """A rate per second in each step of a stretch: for the plot."""

    name: str
    step_s: float
    per_s: list[float]


def series(name: str, instants: Sequence[float], *, since: float) -> Series:
    """How often something happened over time."""
    step_s, per_s = rates(instants, since=since)
    return Series(name, step_s, [round(rate, 1) for rate in per_s])


class Row(msgspec.Struct, kw_only=True):
    """What one row found: its lines of the table, and all that is worth keeping beside them."""

    key: str
    figures: list[Figure] = []
    details: dict[str, object] = {}
    series: list[Series] = []
    took_s: float = 0.0
    problem: str = ""


@dataclass(slots=True)
class Peaks:
    """Peak memory of every sharder process that ran, by the row in which it did."""

    by_row: dict[str, float] = field(default_factory=dict)
    processes: int = 1

    def note(self, row: str, mb: float, processes: int) -> None:
        self.by_row[row] = max(mb, self.by_row.get(row, 0.0))
        self.processes = max(processes, self.processes)


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
