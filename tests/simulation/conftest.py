"""What the simulation leaves in a test's own process is destroyed: tasks of ended processes, loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from simulation.event_loop import EventLoop


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EventLoop]]:
    """Every loop that the test makes; in the end its tasks are closed."""
    made: list[EventLoop] = []
    make = EventLoop.__init__

    def remember(self: EventLoop, *args: object, **kwargs: object) -> None:
        make(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(EventLoop, "__init__", remember)
    yield made
    for loop in made:
        for task in asyncio.all_tasks(loop):
            coroutine = task.get_coro()
            if coroutine is not None:
                coroutine.close()
        loop.forget_tasks()
    gc.collect()
