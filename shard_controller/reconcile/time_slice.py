"""One 5 ms time slice shared by all workers; when it is used up they yield to the event loop.

Owns the slices of one group of asyncio tasks. A plain `sleep(0)` would give each of them a slice before any other
task runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TimeSlice:
    """Slices of *slice_s* seconds of *now*, shared by every task that asks. Within a slice: one read of the clock."""

    def __init__(self, slice_s: float, *, now: Callable[[], float]) -> None:
        self._slice_s = slice_s
        self._now = now
        self._ends_at = 0.0
        self._begins = asyncio.Event()
        self._is_asked_for = False
        self._is_fresh = False

    def is_over(self) -> bool:
        """Whether a task that has not waited should await `next` before it goes on."""
        return self._now() >= self._ends_at

    async def next(self) -> None:
        """Returns within a slice, after everything else that can run has run."""
        while self.is_over():
            if not self._is_asked_for:
                self._is_asked_for = True
                self._begins.clear()
                asyncio.get_running_loop().call_soon(self._begin)
            await self._begins.wait()
            if self._is_fresh:  # counted from here: what ran in between may have taken longer than a slice
                self._is_fresh = False
                self._ends_at = self._now() + self._slice_s

    def _begin(self) -> None:
        self._is_asked_for, self._is_fresh = False, True
        self._begins.set()
