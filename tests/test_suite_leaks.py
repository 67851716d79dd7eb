"""A task that outlives its test fails it."""

from __future__ import annotations

import asyncio

from tests import leaks


def test_a_task_that_is_left_behind_is_named() -> None:
    kept = []

    async def leave_one_behind() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))
        done = asyncio.create_task(asyncio.sleep(0), name="done")
        await done

    asyncio.run(leave_one_behind())
    (left,) = leaks.taken()
    assert left.startswith("forgotten (")
    assert leaks.taken() == []
