"""One timer bounds every wait, and nobody else's cancellation is mistaken for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeio.rest.patience import Patience

pytestmark = pytest.mark.looptime


async def items(*pauses_s: float) -> AsyncIterator[float]:
    for pause_s in pauses_s:
        await asyncio.sleep(pause_s)
        yield pause_s


async def test_each_wait_has_the_whole_limit() -> None:
    source = items(9, 9, 9)
    with Patience(10) as patience:
        assert [await patience.next(source) for _ in range(4)] == [9, 9, 9, None]


@pytest.mark.parametrize("first_s", [0, 4, 9])
async def test_wait_that_is_too_long_ends_at_its_limit(first_s: float) -> None:
    source = items(first_s, 1000)
    loop = asyncio.get_running_loop()
    with Patience(10) as patience:
        await patience.next(source)
        began = loop.time()
        with pytest.raises(TimeoutError):
            await patience.next(source)
        assert loop.time() - began == pytest.approx(10)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # there is a task


async def test_time_between_waits_does_not_count_and_nobody_is_cancelled_in_it() -> None:
    source = items(1, 9)
    with Patience(10) as patience:
        await patience.next(source)
        await asyncio.sleep(500)
        assert await patience.next(source) == 9


async def test_cancellation_by_somebody_else_passes_through() -> None:
    async def wait() -> None:
        with Patience(10) as patience:
            await patience.next(items(1000))

    task = asyncio.create_task(wait())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_cancellation_in_the_same_instant_as_the_limit_is_not_swallowed() -> None:
    async def wait() -> None:
        with Patience(10) as patience:
            await patience.next(items(1000))

    task = asyncio.create_task(wait())
    asyncio.get_running_loop().call_later(10, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled()


async def test_nothing_is_left_behind_after_the_scope() -> None:
    with Patience(10) as patience:
        await patience.next(items(1))
    await asyncio.sleep(100)
