"""Tasks that a test leaves behind when its event loop ends. `conftest.py` fails the test for them."""

from __future__ import annotations

import asyncio
import inspect
from asyncio import runners
from typing import Any, Final

_cancel_all: Final[Any] = runners._cancel_all_tasks  # type: ignore[attr-defined] # asyncio has no public hook there
_left: list[str] = []


def watch() -> None:
    """Note from now on which tasks still run when a loop is closed."""
    runners._cancel_all_tasks = _note_and_cancel_all  # type: ignore[attr-defined]


def taken() -> list[str]:
    """The tasks that were left behind since the last call."""
    left = sorted(_left)
    _left.clear()
    return left


def _note_and_cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    running = [task for task in asyncio.all_tasks(loop) if inspect.iscoroutine(task.get_coro())]
    _left.extend(f"{task.get_name()} ({task.get_coro()!r})" for task in running)
    _cancel_all(loop)
