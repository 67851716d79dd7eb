"""When a reconcile that cannot be stopped ends its process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from shard_controller.observe.watchdog import OVERRUN_EXIT, exit_on_overrun, find_overrun, stack_of_task


@dataclass
class Run:
    """A reconcile as the judge sees it."""

    overruns: bool = True
    overruns_since: float | None = None
    is_counted: bool = False
    in_task: asyncio.Task[object] | None = None


class Judge:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.counted = 0

    def _count(self) -> None:
        self.counted += 1

    def look(self, now: float) -> Run | None:
        found = find_overrun([self.run], now=now, patience_s=30, on_overrun=self._count)
        assert found in (None, self.run)
        return self.run if found is not None else None


def test_what_goes_on_for_its_whole_time_again_is_found() -> None:
    judge = Judge(Run())
    assert [judge.look(now) is not None for now in (100, 101, 129.9, 130, 131)] == [False] * 3 + [True] * 2


def test_it_is_counted_once_and_not_if_it_ends_right_away() -> None:
    judge = Judge(Run())
    judge.look(100)
    assert judge.counted == 0, "it has not had a turn of the loop yet to end"
    judge.look(101)
    judge.look(102)
    assert judge.counted == 1


def test_the_time_counts_from_the_first_check_since_a_blocked_loop_shows_all_at_once() -> None:
    judge = Judge(Run())
    assert judge.look(10_000) is None


def test_what_does_not_overrun_is_left_alone() -> None:
    judge = Judge(Run(overruns=False))
    assert [judge.look(now) for now in (100, 200, 300)] == [None] * 3
    assert judge.counted == 0


def test_the_surroundings_end_the_process_with_the_exit_code_of_an_overrun() -> None:
    ends: list[int] = []
    exit_on_overrun("a reason", Run(), end_process=ends.append)
    assert ends == [OVERRUN_EXIT]


async def test_the_calls_that_a_task_waits_in_are_shown_down_to_the_last() -> None:
    async def outer() -> None:
        await inner()

    async def inner() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(outer(), name="a reconcile")
    await asyncio.sleep(0)
    head, *shown = stack_of_task(task).splitlines()
    task.cancel()
    assert head == "task a reconcile:"
    calls = [line for line in shown if line.startswith("  File ")]
    assert [line.rpartition(" in ")[2].strip() for line in calls] == ["outer", "inner", "wait"]
    assert "test_shard_overrun.py" in calls[1]
