"""Turns to write, on virtual time: first come, first served; a pause that the server asks for holds for all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from kubeio.errors import Conflict, ServerFailure, TooManyRequests, Unreachable
from sharder.writing.limit import Limit
from sharder.writing.pace import LONGEST_PAUSE_S, UNNAMED_PAUSE_S, Pace
from tests.kubeio.virtual import LoopClock

pytestmark = pytest.mark.looptime


def make_pace(first: int = 2, *, most: int = 2) -> Pace:
    return Pace(clock=LoopClock(), rng=random.Random(1), limit=Limit(first=first, most=most))


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def entered(pace: Pace, names: str, order: list[str], *, for_s: float = 1.0) -> AsyncIterator[None]:
    """One task per letter that enters, notes its letter and leaves after *for_s*."""

    async def one(name: str) -> None:
        await pace.enter()
        order.append(name)
        try:
            await asyncio.sleep(for_s)
        finally:
            pace.leave()

    tasks = [asyncio.create_task(one(name)) for name in names]
    await asyncio.sleep(0.001)
    yield
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def too_many(after_s: float | None) -> TooManyRequests:
    return TooManyRequests("PATCH", status=429, retry_after_s=after_s)


async def test_turns_come_in_order_of_arrival_and_never_more_than_the_limit() -> None:
    pace, order = make_pace(), list[str]()
    async with entered(pace, "abcdef", order):
        assert order == ["a", "b"]
        assert (pace.in_flight, pace.waiting) == (2, 4)
        await asyncio.sleep(1)
        assert order == ["a", "b", "c", "d"]
        await asyncio.sleep(1)
        assert order == list("abcdef")
    assert (pace.in_flight, pace.waiting) == (0, 0)


async def test_nobody_overtakes_those_who_wait_though_there_is_room() -> None:
    pace, order = make_pace(1, most=1), list[str]()
    async with entered(pace, "ab", order, for_s=0.5):
        await asyncio.sleep(0.499)
        async with entered(pace, "c", order):
            await asyncio.sleep(2)
    assert order == ["a", "b", "c"]


async def test_what_one_write_is_told_to_wait_everybody_waits() -> None:
    pace, order = make_pace(8, most=8), list[str]()
    await pace.enter()
    pace.failed(0.01, too_many(5.0))
    pace.leave()
    began = now()
    async with entered(pace, "abc", order):
        await asyncio.sleep(4.9)
        assert order == []
        await asyncio.sleep(0.8)
        assert order == ["a", "b", "c"]
        assert 5.0 <= now() - began <= 5.8
    assert pace.paused_s() == 0


async def test_a_429_without_a_time_pauses_for_a_second_and_no_pause_is_endless() -> None:
    pace = make_pace()
    pace.failed(0.01, too_many(None))
    assert UNNAMED_PAUSE_S <= pace.paused_s() <= UNNAMED_PAUSE_S * 1.1
    pace.failed(0.01, too_many(86_400.0))
    assert LONGEST_PAUSE_S <= pace.paused_s() <= LONGEST_PAUSE_S * 1.1


async def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    pace = make_pace()
    pace.failed(0.01, too_many(10.0))
    pace.failed(0.01, too_many(1.0))
    assert pace.paused_s() >= 10


async def test_retry_after_of_a_server_failure_is_a_pause_and_silence_alone_is_none() -> None:
    pace = make_pace(8, most=8)
    pace.failed(30.0, Unreachable("PATCH", "no answer in time", maybe_done=True))
    assert (pace.paused_s(), pace.limit) == (0, 4)
    pace.failed(0.0, ServerFailure("PATCH", status=503, retry_after_s=3.0))
    assert pace.paused_s() >= 3


async def test_a_conflict_is_an_answer_and_pushes_nothing_back() -> None:
    pace = make_pace(8, most=8)
    pace.failed(0.01, Conflict("PATCH", status=409))
    assert (pace.paused_s(), pace.limit) == (0, 8)


async def test_a_turn_that_came_together_with_a_cancellation_is_given_on() -> None:
    pace, order = make_pace(1, most=1), list[str]()
    await pace.enter()
    waiting = asyncio.create_task(pace.enter())
    await asyncio.sleep(0)
    async with entered(pace, "b", order):
        pace.leave()  # gives the turn to `waiting` ...
        waiting.cancel()  # ... which is cancelled before it could use it
        with suppress(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.1)
        assert order == ["b"]


async def test_one_who_gave_up_is_passed_over() -> None:
    pace, order = make_pace(1, most=1), list[str]()
    await pace.enter()
    waiting = asyncio.create_task(pace.enter())
    await asyncio.sleep(0)
    waiting.cancel()
    async with entered(pace, "b", order):
        pace.leave()
        await asyncio.sleep(0.1)
        assert order == ["b"]
        assert pace.in_flight == 1
