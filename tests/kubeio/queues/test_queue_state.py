"""What a queue tells about its keys, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.queues.workqueue import KeyState, WorkQueue
from tests.kubeio.virtual import LoopClock, rng

pytestmark = pytest.mark.looptime


def new_queue() -> WorkQueue[str]:
    return WorkQueue(clock=LoopClock(), rng=rng())


async def test_state_of_a_key_is_how_long_it_waits_and_runs_and_when_it_is_due() -> None:
    queue = new_queue()
    assert queue.state("a") == KeyState(None, None, False, None, 0)
    queue.add("a")
    await asyncio.sleep(2)
    assert queue.state("a").waiting_s == pytest.approx(2)
    await queue.get()
    await asyncio.sleep(3)
    queue.add("a")
    state = queue.state("a")
    assert state.running_s == pytest.approx(3)
    assert (state.waiting_s, state.is_wanted_again) == (None, True)
    queue.add_rate_limited("a")
    queue.add_after("a", 60)
    state = queue.state("a")
    assert state.failures == 1
    assert state.due_in_s is not None
    assert state.due_in_s < 0.01, "the earliest wish counts"


async def test_the_first_that_wait_and_the_next_that_are_due() -> None:
    queue = new_queue()
    for key in ("a", "b", "c"):
        queue.add(key)
    assert queue.first_waiting(2) == ["a", "b"]
    for key, delay_s in (("x", 30.0), ("y", 10.0), ("z", 20.0)):
        queue.add_after(key, delay_s)
    assert queue.next_due(2) == ["y", "z"]
    assert queue.next_due(9) == ["y", "z", "x"]
    queue.close()
