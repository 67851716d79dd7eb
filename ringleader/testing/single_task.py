"""Async context manager that one task enters and leaves, whichever task uses it: for async fixtures.

pytest runs the two halves of an async fixture in different tasks; task groups and timeouts inside a context do not
allow that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def single_task(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """*context*, open during the block. Raises the errors of its entry and exit."""
    loop = asyncio.get_running_loop()
    entered: asyncio.Future[T] = loop.create_future()
    enough = asyncio.Event()
    keeper = loop.create_task(_keep(context, entered, enough), name="single-task context")
    first: set[asyncio.Future[Any]] = {keeper, entered}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not entered.done():
        await keeper  # its entry failed
    try:
        yield entered.result()
    finally:
        enough.set()
        await keeper


async def _keep(
    context: AbstractAsyncContextManager[T], entered: asyncio.Future[T], enough: asyncio.Event
) -> None:
    async with context as value:
        entered.set_result(value)
        await enough.wait()
