"""Cancellation of work that may fail: the failure does not replace the cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def cancellable(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """Result of *work*, which runs as a task of its own. A caller that catches its error is cancelled all the same.

    A TaskGroup that ends by an error swallows a cancellation that comes meanwhile (Python 3.11 and 3.12), and
    `cancelling()` does not show it. A loop that retries such work would go on for ever.
    """
    task = asyncio.create_task(work, name=name)  # ends before this function does
    try:
        await asyncio.gather(task, return_exceptions=True)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or task.cancelled() or task.exception() is None:
            raise
        current.cancel()  # at the next await
    return task.result()
