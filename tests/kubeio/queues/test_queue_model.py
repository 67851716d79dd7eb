"""The work queue against a naive model of it: hypothesis searches for a history in which they differ."""

from __future__ import annotations

import asyncio

import looptime
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeio.queues.workqueue import Priority, QueueClosed, WorkQueue
from tests.kubeio.virtual import LoopClock, rng

KEYS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from(Priority)
PASSED_OVER = 8


class NaiveQueue:
    """The same promises, written so plainly that they can be read."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: list[tuple[str, Priority]] = []  # in the order in which they came to their priority
        self.again: dict[str, Priority] = {}
        self.processing: list[str] = []
        self.due: dict[str, tuple[int, int, Priority]] = {}
        self.passed_over = dict.fromkeys(Priority, 0)
        self.asked = 0
        self.closed = False

    def add(self, key: str, priority: Priority) -> None:
        if self.closed:
            return
        if key in self.processing:
            self.again[key] = max(priority, self.again.get(key, priority))
            return
        known = [waiting for waiting in self.waiting if waiting[0] == key]
        if known and known[0][1] >= priority:
            return
        self.waiting = [waiting for waiting in self.waiting if waiting[0] != key]
        self.waiting.append((key, priority))
        self.forget_patience()

    def add_after(self, key: str, delay: int, priority: Priority) -> None:
        if self.closed:
            return
        if delay <= 0:
            self.add(key, priority)
            return
        at = self.now + delay
        if key in self.due:
            known_at, _, known_priority = self.due[key]
            if known_at <= at and known_priority >= priority:
                return
            at, priority = min(at, known_at), max(priority, known_priority)
        self.asked += 1
        self.due[key] = (at, self.asked, priority)

    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        for key in sorted(self.due, key=lambda key: self.due[key]):
            if self.due[key][0] <= self.now:
                self.add(key, self.due.pop(key)[2])

    def get(self) -> str:
        levels = sorted({priority for _, priority in self.waiting}, reverse=True)
        overdue = [priority for priority in levels if self.passed_over[priority] >= PASSED_OVER]
        chosen = overdue[-1] if overdue else levels[0]
        for priority in levels:
            self.passed_over[priority] += 1
        self.passed_over[chosen] = 0
        key = next(key for key, priority in self.waiting if priority == chosen)
        self.waiting.remove((key, chosen))
        self.processing.append(key)
        self.forget_patience()
        return key

    def done(self, key: str) -> None:
        if key in self.processing:
            self.processing.remove(key)
            if key in self.again:
                self.waiting.append((key, self.again.pop(key)))

    def discard(self, key: str) -> None:
        self.waiting = [waiting for waiting in self.waiting if waiting[0] != key]
        self.again.pop(key, None)
        self.due.pop(key, None)
        self.forget_patience()

    def close(self) -> None:
        self.closed = True
        self.due.clear()

    def forget_patience(self) -> None:
        """Who has no keys has not been passed over; who waits alone is not passed over by anybody."""
        levels = {priority for _, priority in self.waiting}
        for priority in Priority:
            if priority not in levels:
                self.passed_over[priority] = 0


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop()
        self.queue: WorkQueue[str] = WorkQueue(clock=LoopClock(), rng=rng())
        self.model = NaiveQueue()

    def teardown(self) -> None:
        self.loop.close()

    async def _in_loop(self, name: str, *arguments: object, **options: object) -> None:
        getattr(self.queue, name)(*arguments, **options)

    def both(self, name: str, *arguments: object, **options: object) -> None:
        self.loop.run_until_complete(self._in_loop(name, *arguments, **options))
        getattr(self.model, name)(*arguments, **options)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self.both("add", key, priority=priority)

    @rule(key=KEYS, delay=st.integers(-1, 90), priority=PRIORITIES)
    def add_after(self, key: str, delay: int, priority: Priority) -> None:
        self.both("add_after", key, delay, priority=priority)

    @precondition(lambda self: self.model.waiting)
    @rule(times=st.integers(9, 16))
    def serve_a_busy_queue(self, times: int) -> None:
        """Long enough for levels to become overdue."""
        for _ in range(times):
            if not self.model.waiting:
                return
            self.get()
            key = self.model.processing[-1]
            self.both("done", key)
            self.both("add", key, priority=Priority.HANDOFF)

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
