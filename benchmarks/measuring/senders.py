"""Requests of a benchmark's own clients: as fast as they are answered, or at a steady rate."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def spread(send: Callable[[T], Awaitable[object]], items: Iterable[T], *, at_once: int) -> None:
    """Call *send* with each of *items*, *at_once* at a time."""
    left = iter(items)

    async def sender() -> None:
        for item in left:
            await send(item)

    async with asyncio.TaskGroup() as tasks:
        for number in range(at_once):
            tasks.create_task(sender(), name=f"sender-{number}")


async def send_steadily(send: Callable[[int], Awaitable[object]], *, per_s: float, at_once: int = 0) -> None:
    """Call *send* with 1, 2, ... *per_s* times a second until cancelled.

    At most *at_once* calls are under way; 0: as many as there are, whether earlier ones have returned or not.
    """
    loop = asyncio.get_running_loop()
    began_at, numbers = loop.time(), itertools.count(1)

    async def sender(tasks: asyncio.TaskGroup) -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began_at + number / per_s - loop.time()))
            if at_once:
                await send(number)
            else:
                tasks.create_task(_send(send, number), name=f"request-{number}")

    async with asyncio.TaskGroup() as tasks:
        for number in range(at_once or 1):
            tasks.create_task(sender(tasks), name=f"sender-{number}")


async def _send(send: Callable[[int], Awaitable[object]], number: int) -> None:
    await send(
        number
    )  # called in the task: one that is cancelled before it starts leaves no coroutine behind
