"""The work queue against a naive model of it: hypothesis searches for a history in which they differ."""

from __future__ import annotations

import asyncio

import looptime
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeio.queues.workqueue import QueueClosed, WorkQueue
from tests.kubeio.virtual import LoopClock, rng

KEYS = st.sampled_from("abcde")


class NaiveQueue:
    """The same promises, written so plainly that they can be read."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: list[str] = []
        self.again: list[str] = []
        self.processing: list[str] = []
        self.due: dict[str, tuple[int, int]] = {}
        self.asked = 0
        self.closed = False

    def add(self, key: str) -> None:
        if self.closed or key in self.waiting or key in self.again:
            return
        (self.again if key in self.processing else self.waiting).append(key)

    def add_after(self, key: str, delay: int) -> None:
        if self.closed:
            return
        if delay <= 0:
            self.add(key)
        elif key not in self.due or self.now + delay < self.due[key][0]:
            self.asked += 1
            self.due[key] = (self.now + delay, self.asked)

    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        for key in sorted(self.due, key=lambda key: self.due[key]):
            if self.due[key][0] <= self.now:
                del self.due[key]
                self.add(key)

    def get(self) -> str:
        key = self.waiting.pop(0)
        self.processing.append(key)
        return key

    def done(self, key: str) -> None:
        if key in self.processing:
            self.processing.remove(key)
            if key in self.again:
                self.again.remove(key)
                self.waiting.append(key)

    def discard(self, key: str) -> None:
        self.waiting = [k for k in self.waiting if k != key]
        self.again = [k for k in self.again if k != key]
        self.due.pop(key, None)

    def close(self) -> None:
        self.closed = True
        self.due.clear()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop()
        self.queue: WorkQueue[str] = WorkQueue(clock=LoopClock(), rng=rng())
        self.model = NaiveQueue()

    def teardown(self) -> None:
        self.loop.close()

    async def _in_loop(self, name: str, *arguments: object) -> None:
        getattr(self.queue, name)(*arguments)

    def both(self, name: str, *arguments: object) -> None:
        self.loop.run_until_complete(self._in_loop(name, *arguments))
        getattr(self.model, name)(*arguments)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.both("add", key)

    @rule(key=KEYS, delay=st.integers(-1, 90))
    def add_after(self, key: str, delay: int) -> None:
        self.both("add_after", key, delay)

    @rule(key=KEYS)
    def discard(self, key: str) -> None:
        self.both("discard", key)

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        self.both("done", key)

    @rule(seconds=st.integers(1, 70))
    def pass_time(self, seconds: int) -> None:
        # a hair more, so that timers of this very second have run in both
        self.loop.run_until_complete(asyncio.sleep(seconds + 0.001))
        self.loop.run_until_complete(asyncio.sleep(0.999))
        self.model.pass_time(seconds + 1)

    @precondition(lambda self: self.model.waiting)
    @rule()
    def get(self) -> None:
        assert self.loop.run_until_complete(self.queue.get()) == self.model.get()

    @precondition(lambda self: self.model.waiting)
    @rule()
    def get_and_be_cancelled_at_once(self) -> None:
        async def cancelled_get() -> None:
            task = asyncio.ensure_future(self.queue.get())
            task.cancel()
            await asyncio.wait([task])

        self.loop.run_until_complete(cancelled_get())

    @precondition(lambda self: self.model.closed and not self.model.waiting)
    @rule()
    def get_from_the_closed_queue(self) -> None:
        try:
            self.loop.run_until_complete(self.queue.get())
        except QueueClosed:
            return
        raise AssertionError("a closed and empty queue handed out a key")

    @precondition(lambda self: self.model.asked > 3)
    @rule()
    def close(self) -> None:
        self.both("close")

    @invariant()
    def looks_like_the_model(self) -> None:
        assert len(self.queue) == len(self.model.waiting)
        assert self.queue.processing == frozenset(self.model.processing)
        assert self.queue.delayed == len(self.model.due)


QueueMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
test_any_history_of_calls_looks_like_the_naive_queue = QueueMachine.TestCase
