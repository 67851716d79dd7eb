"""Retried work ends by one cancellation, whatever it does when the cancellation comes."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.cancellation import cancellable

pytestmark = pytest.mark.looptime
GROUPS = 5
MOMENTS = 5 * GROUPS
"""Iterations of the event loop; the groups need two each to end."""


class Work:
    """Task groups, one in the other; the innermost one fails once `fails` is set."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()

    async def run(self, groups: int = GROUPS) -> None:
        if groups:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.run(groups - 1))
        else:
            await self.fails.wait()
            raise OSError("failed")


async def retrying(work: Work) -> None:
    while True:
        try:
            await cancellable(work.run(), name="attempt")
        except* OSError:
            await asyncio.sleep(1)


async def test_a_cancellation_at_any_moment_of_a_failure_ends_a_loop_that_retries() -> None:
    for moment in range(MOMENTS):
        work = Work()
        task = asyncio.create_task(retrying(work))
        await asyncio.sleep(1)
        work.fails.set()
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.5)
        task.cancel()
        assert done, f"goes on after a cancellation {moment} iterations after the failure"


async def test_an_error_that_comes_with_a_cancellation_is_raised() -> None:
    """It may be one that ends the process."""

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("failed")

    task = asyncio.create_task(cancellable(fails(), name="attempt"))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(OSError, match="failed"):
        await task


async def test_work_that_returns_or_is_cancelled_is_as_without_it() -> None:
    async def returns() -> int:
        return 7

    assert await cancellable(returns(), name="attempt") == 7
    task = asyncio.create_task(cancellable(asyncio.sleep(60), name="attempt"))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
