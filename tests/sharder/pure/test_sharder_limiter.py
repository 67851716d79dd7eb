"""The limiter of writes, on virtual time: who goes first, how many at once; a pause of the server holds for all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from kubeio.errors import Conflict, ServerFailure, TooManyRequests, Unreachable
from sharder.ringspec.spec import Pace
from sharder.writing.adaptive_limit import AdaptiveLimit
from sharder.writing.limiter import LONGEST_PAUSE_S, SHARE, UNNAMED_PAUSE_S, WriteLimiter
from tests.kubeio.virtual import LoopClock

pytestmark = pytest.mark.looptime


def make_limiter(most: int = 2) -> WriteLimiter:
    return WriteLimiter(clock=LoopClock(), rng=random.Random(1), limit=AdaptiveLimit(most=most))


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def entered(
    limiter: WriteLimiter,
    names: str,
    order: list[str],
    *,
    for_s: float = 1.0,
    pace: Pace = Pace.URGENT,
    ahead: bool = False,
) -> AsyncIterator[None]:
    """One task per letter that enters, notes its letter and leaves after *for_s*."""

    async def one(name: str) -> None:
        await limiter.enter(pace, ahead=ahead)
        order.append(name)
        try:
            await asyncio.sleep(for_s)
        finally:
            limiter.leave()

    tasks = [asyncio.create_task(one(name)) for name in names]
    await asyncio.sleep(0.001)
    yield
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def too_many(after_s: float | None) -> TooManyRequests:
    return TooManyRequests("PATCH", status=429, retry_after_s=after_s)


async def test_slots_come_in_order_of_arrival_and_never_more_than_the_limit() -> None:
    limiter, order = make_limiter(), list[str]()
    async with entered(limiter, "abcdef", order):
        assert order == ["a", "b"]
        assert (limiter.in_flight, limiter.pending) == (2, 4)
        await asyncio.sleep(1)
        assert order == ["a", "b", "c", "d"]
        await asyncio.sleep(1)
        assert order == list("abcdef")
    assert (limiter.in_flight, limiter.pending) == (0, 0)


async def test_no_write_overtakes_those_that_wait_though_a_slot_is_free() -> None:
    limiter, order = make_limiter(1), list[str]()
    async with entered(limiter, "ab", order, for_s=0.5):
        await asyncio.sleep(0.499)
        async with entered(limiter, "c", order):
            await asyncio.sleep(2)
    assert order == ["a", "b", "c"]


async def test_a_retry_after_of_one_write_holds_for_all() -> None:
    limiter, order = make_limiter(8), list[str]()
    await limiter.enter(Pace.URGENT)
    limiter.failed(0.01, too_many(5.0))
    limiter.leave()
    began = now()
    async with entered(limiter, "ab", order):
        await asyncio.sleep(4.9)
        assert order == []
        await asyncio.sleep(0.8)
        assert order == ["a", "b"]
        assert 5.0 <= now() - began <= 5.8
    assert limiter.paused_s() == 0


async def test_a_429_without_a_time_pauses_for_a_second_and_no_pause_is_endless() -> None:
    limiter = make_limiter()
    limiter.failed(0.01, too_many(None))
    assert UNNAMED_PAUSE_S <= limiter.paused_s() <= UNNAMED_PAUSE_S * 1.1
    limiter.failed(0.01, too_many(86_400.0))
    assert LONGEST_PAUSE_S <= limiter.paused_s() <= LONGEST_PAUSE_S * 1.1


async def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    limiter = make_limiter()
    limiter.failed(0.01, too_many(10.0))
    limiter.failed(0.01, too_many(1.0))
    assert limiter.paused_s() >= 10


async def test_retry_after_of_a_server_failure_is_a_pause_and_silence_alone_is_none() -> None:
    limiter = make_limiter(8)
    limiter.failed(30.0, Unreachable("PATCH", "no answer in time", maybe_done=True))
    assert (limiter.paused_s(), limiter.allowed(Pace.URGENT)) == (0, 2)
    limiter.failed(0.0, ServerFailure("PATCH", status=503, retry_after_s=3.0))
    assert limiter.paused_s() >= 3


async def test_a_conflict_is_an_answer_and_pushes_nothing_back() -> None:
    limiter = make_limiter(8)
    limiter.failed(0.01, Conflict("PATCH", status=409))
    assert (limiter.paused_s(), limiter.allowed(Pace.URGENT)) == (0, 4)


async def test_a_slot_that_came_together_with_a_cancellation_is_given_on() -> None:
    limiter, order = make_limiter(1), list[str]()
    await limiter.enter(Pace.URGENT)
    pending = asyncio.create_task(limiter.enter(Pace.URGENT))
    await asyncio.sleep(0)
    async with entered(limiter, "b", order):
        limiter.leave()  # gives the turn to `pending` ...
        pending.cancel()  # ... which is cancelled before it could use it
        with suppress(asyncio.CancelledError):
            await pending
        await asyncio.sleep(0.1)
        assert order == ["b"]


async def test_one_who_gave_up_is_passed_over() -> None:
    limiter, order = make_limiter(1), list[str]()
    await limiter.enter(Pace.URGENT)
    pending = asyncio.create_task(limiter.enter(Pace.URGENT))
    await asyncio.sleep(0)
    pending.cancel()
    async with entered(limiter, "b", order):
        limiter.leave()
        await asyncio.sleep(0.1)
        assert order == ["b"]
        assert limiter.in_flight == 1


# -- paces --------------------------------------------------------------------------------------------------


async def test_a_polite_write_waits_where_an_urgent_one_may_begin() -> None:
    limiter, order = make_limiter(8), list[str]()
    async with entered(limiter, "abcdef", order, pace=Pace.BACKGROUND):
        polite = len(order)
        async with entered(limiter, "UVWXYZ", order):
            assert polite < len(order) == limiter.allowed(Pace.URGENT)


async def test_objects_without_a_worker_go_ahead_of_others_that_came_before() -> None:
    limiter, order = make_limiter(1), list[str]()
    async with (
        entered(limiter, "abc", order),
        entered(limiter, "UV", order, ahead=True, pace=Pace.BACKGROUND),
    ):
        await asyncio.sleep(10)
    assert order == list("aUVbc")


async def test_no_queue_starves_though_more_urgent_writes_never_end() -> None:
    limiter, order = make_limiter(1), list[str]()
    async with (
        entered(limiter, "U" * 100, order, ahead=True),
        entered(limiter, "n" * 100, order, pace=Pace.NORMAL),
        entered(limiter, "b" * 100, order, pace=Pace.BACKGROUND),
    ):
        await asyncio.sleep(8 * SHARE)
    assert order.count("n") >= 3
    assert order.count("b") >= 3
    assert order.count("U") >= 6 * SHARE
