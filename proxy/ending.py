"""The end of a proxy by a signal: a shard that leaves gives everything up first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable


async def end_on_cancel(
    running: Coroutine[object, object, None],
    leave: Callable[[], Awaitable[None]],
    ends: Iterable[asyncio.Event],
) -> None:
    """Wait for *running*, which ends by *ends*. A first cancellation starts *leave*, and sets them behind it.

    A second one cancels *running*.
    """

    async def end() -> None:
        try:
            await leave()
        finally:
            for event in ends:
                event.set()

    task = asyncio.create_task(running, name="runs")  # ends before this function does
    ending: asyncio.Task[None] | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() or ending is not None:
                task.cancel()
                if ending is not None:
                    ending.cancel()
                raise
            ending = asyncio.create_task(end(), name="end")
            if (current := asyncio.current_task()) is not None:
                current.uncancel()
    if ending is not None:
        await ending
