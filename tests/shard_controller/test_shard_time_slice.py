"""TimeSlice on the loop, on a clock that moves only when somebody works."""

from __future__ import annotations

import asyncio

from shard_controller.reconcile.time_slice import TimeSlice

SLICE_S = 5.0


class Busy:
    """Tasks that work without ever waiting, beside one that only wants to be asked now and then."""

    def __init__(self, tasks: int, *, units: int) -> None:
        self.now = 100.0
        self.record: list[str] = []
        self._tasks = tasks
        self._left = units
        self._turns = TimeSlice(SLICE_S, now=lambda: self.now)

    async def run(self) -> list[str]:
        async with asyncio.TaskGroup() as group:
            beside = group.create_task(self._beside())
            workers = [group.create_task(self._work(f"worker {number}")) for number in range(self._tasks)]
            await asyncio.wait(workers)
            beside.cancel()
        return self.record

    async def _work(self, name: str) -> None:
        while self._left > 0:
            if self._turns.is_over():
                await self._turns.next()
            self._left -= 1
            self.now += 1.0
            self.record.append(name)

    async def _beside(self) -> None:
        while True:
            self.record.append("others")
            await asyncio.sleep(0)


def longest_without_others(record: list[str]) -> int:
    longest = run = 0
    for name in record:
        run = 0 if name == "others" else run + 1
        longest = max(longest, run)
    return longest


async def test_however_many_never_wait_the_others_go_after_one_slice() -> None:
    for tasks in (1, 2, 8, 64):
        record = await Busy(tasks, units=200).run()
        assert sum(name != "others" for name in record) >= 200
        assert longest_without_others(record) <= SLICE_S, tasks


async def test_what_takes_longer_than_a_slice_does_not_keep_the_others_from_theirs() -> None:
    """Whatever runs between two slices: the one who comes first gets the whole of the next."""
    now = 0.0
    time_slice = TimeSlice(SLICE_S, now=lambda: now)

    async def slow() -> None:
        nonlocal now
        while True:
            now += 10 * SLICE_S
            await asyncio.sleep(0)

    beside = asyncio.create_task(slow())
    async with asyncio.timeout(5):
        for _ in range(20):
            await time_slice.next()
    beside.cancel()


async def test_a_cancelled_task_cancels_no_other() -> None:
    time_slice = TimeSlice(SLICE_S, now=lambda: 0.0)
    first, second = asyncio.create_task(time_slice.next()), asyncio.create_task(time_slice.next())
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(5):
        await second
