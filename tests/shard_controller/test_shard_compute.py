"""The process pool behind `ctx.compute`, with real processes."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import BrokenExecutor
from typing import Any

import pytest

from kubeio.errors import InputError
from shard_controller.api.compute import ComputePool


@pytest.fixture
async def pool() -> AsyncIterator[ComputePool]:
    pool = ComputePool(1)
    yield pool
    pool.close()


async def test_a_function_runs_in_another_process(pool: ComputePool) -> None:
    assert await pool.run(math.factorial, 20) == 2432902008176640000
    assert await pool.run(os.getpid) != os.getpid()


async def test_what_a_function_raises_is_raised(pool: ComputePool) -> None:
    with pytest.raises(ValueError, match="factorial"):
        await pool.run(math.factorial, -1)


async def test_the_event_loop_goes_on_meanwhile(pool: ComputePool) -> None:
    await pool.run(os.getpid)
    ticks = 0
    computing = asyncio.create_task(pool.run(time.sleep, 0.3))
    while not computing.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 10


async def test_a_pool_that_broke_fails_its_calls_and_the_next_one_has_a_new_one(pool: ComputePool) -> None:
    with pytest.raises(BrokenExecutor):
        await pool.run(os._exit, 1)
    assert await pool.run(math.factorial, 3) == 6


async def test_a_call_that_runs_is_over_when_its_answer_is_dropped(pool: ComputePool) -> None:
    await pool.run(os.getpid)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await pool.run(time.sleep, 1.0)
    assert time.monotonic() - began >= 0.9
    assert await pool.run(math.factorial, 3) == 6


async def test_a_second_cancellation_does_not_end_the_wait_either(pool: ComputePool) -> None:
    await pool.run(os.getpid)
    computing = asyncio.create_task(pool.run(time.sleep, 0.6))
    await asyncio.sleep(0.1)
    computing.cancel()
    await asyncio.sleep(0.1)
    computing.cancel()
    await asyncio.sleep(0.1)
    assert not computing.done()
    with pytest.raises(asyncio.CancelledError):
        await computing


async def test_a_call_that_has_not_begun_never_begins_once_it_is_cancelled(pool: ComputePool) -> None:
    await pool.run(os.getpid)
    first = asyncio.create_task(pool.run(time.sleep, 0.4))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(pool.run(time.sleep, 30.0))
    await asyncio.sleep(0.05)
    second.cancel()
    await asyncio.wait({second}, timeout=0.2)
    assert second.cancelled()
    await first
    assert await pool.run(math.factorial, 3) == 6


async def _pure() -> int:
    return 1


async def test_what_another_process_cannot_find_is_refused(pool: ComputePool) -> None:
    with pytest.raises(InputError, match="cannot be found by another process; define it at the top"):
        await pool.run(lambda: 1)
    unawaited: Any = _pure
    with pytest.raises(InputError, match="is async"):
        await pool.run(unawaited)
