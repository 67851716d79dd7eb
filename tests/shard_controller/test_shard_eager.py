"""A coroutine that was begun by hand is awaited to its end as if it had not been."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shard_controller.observe.eager import rest_of
from shard_controller.observe.watchdog import awaiting


async def begun(call: Any) -> Any:
    """What `await call` would give, by way of `rest_of`."""
    try:
        waits_for = call.send(None)
    except StopIteration as answer:
        return answer.value
    return await rest_of(call, waits_for)


async def after_waiting(times: int, seen: list[str]) -> str:
    for turn in range(times):
        await asyncio.sleep(0 if turn % 2 else 0.001)
        seen.append(f"turn {turn}")
    return "done"


@pytest.mark.parametrize("times", [0, 1, 5])
async def test_the_answer_is_that_of_the_call(times: int) -> None:
    seen: list[str] = []
    assert await begun(after_waiting(times, seen)) == "done"
    assert len(seen) == times


async def test_what_the_call_raises_is_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await begun(fails())


async def test_what_it_waits_for_may_fail_and_be_caught() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def catches() -> str:
        try:
            await future
        except LookupError:
            await asyncio.sleep(0)
        return "caught"

    asyncio.get_running_loop().call_soon(future.set_exception, LookupError())
    assert await begun(catches()) == "caught"


async def test_a_cancellation_reaches_the_call_and_its_clean_up_may_wait() -> None:
    seen: list[str] = []

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.001)
            seen.append("clean")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await begun(cleans_up())
    assert seen == ["clean"]


async def test_its_stack_shows_where_the_call_waits() -> None:
    async def innermost() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await innermost()

    task = asyncio.create_task(begun(outer()))
    await asyncio.sleep(0.01)
    shown = [frame.f_code.co_name for frame in awaiting(task)]
    task.cancel()
    assert shown == ["begun", "rest_of", "outer", "innermost", "sleep"]
