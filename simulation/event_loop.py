"""Event loop of one simulated thread, on its machine's clock: one iteration per event of the world.

It has what the program calls of asyncio's loops, and no sockets. Tasks and futures hash by the order in which they are
first hashed: sets of them iterate alike in every run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

if TYPE_CHECKING:
    from simulation.process import Process

_Ts = TypeVarTuple("_Ts")
_numbers: Final = count(1)
_ROUNDING_S: Final = 1e-6
_EXECUTOR_S: Final = 0.001
"""What a function takes on another thread."""
_MOST_IN_A_ROW: Final = 5_000
"""Iterations in a row after which a thread has to wait for something; 60 are usual."""


class _Task(asyncio.Task[Any]):
    """Task that hashes by a number."""

    _number = 0

    def __hash__(self) -> int:
        self._number = self._number or next(_numbers)
        return self._number


class _Future(asyncio.Future[Any]):
    """Future that hashes by a number."""

    _number = 0

    def __hash__(self) -> int:
        self._number = self._number or next(_numbers)
        return self._number


class Handle:
    """Call that is due: what the program uses of `asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class EventLoop(asyncio.AbstractEventLoop):
    """Loop of a thread of *process*. It runs while the process is neither frozen nor ended and its machine runs."""

    def __init__(self, process: Process, name: str) -> None:
        self.name: Final = name
        self.is_frozen = False
        self._process: Final = process
        self._world: Final = process.world
        self._machine: Final = process.machine
        self._ready: Final[deque[Handle]] = deque()
        self._timers: Final[list[tuple[float, int, Handle]]] = []
        self._timer_numbers: Final = count()
        self._wakes_at: Final[list[float]] = []
        """Events of the world at which this loop looks what is due, the earliest last."""
        self._is_stepping = False
        self._in_a_row = 0
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        """Every task that is not done: of a process that ended, nothing is collected, so nothing of it runs."""

    # -- what the program calls

    def time(self) -> float:
        return self._machine.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **kwargs: Any
    ) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, **kwargs)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_soon(  # type: ignore[override]  # a handle of ours
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        if not self._is_stepping:
            self.wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # a handle of ours

    def call_at(  # type: ignore[override]  # a handle of ours
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle:
        timer = Handle(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        if not self._is_stepping:
            self.wake()
        return timer

    def call_later(  # type: ignore[override]  # a handle of ours
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]  # typeshed: a coroutine function; asyncio: returns a future
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call *func* a moment later, in no thread: one run has one order of events."""
        future = self.create_future()
        self._world.after(_EXECUTOR_S, lambda: self.call_soon(_finish, future, func, args))
        return future

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        """A task's exception was asked for by no one: asyncio writes it to stderr."""

    # -- what the world calls

    def wake(self) -> None:
        """Have the world run an iteration when something is due."""
        due = self._due()
        if due < math.inf and (not self._wakes_at or due < self._wakes_at[-1]):
            self._wakes_at.append(due)
            self._world.at(due, self._on_wake)

    def step(self) -> None:
        """One iteration, now. May be called in the iteration of another loop: that is how a thread starts."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_stepping = True
        try:
            self._run_once()
        except SystemExit:  # the process has ended
            pass
        finally:
            self._is_stepping = False
            asyncio._set_running_loop(outer)
        if self._process.has_ended:
            return
        self._in_a_row = self._in_a_row + 1 if self._ready else 0
        if self._in_a_row > _MOST_IN_A_ROW:
            self._world.violate("rest", f"{self._process}, loop {self.name}: never waits")
        self._process.count_step()
        self.wake()

    def forget_tasks(self) -> None:
        """After the run: what is left of its process may be collected."""
        self._tasks.clear()

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        end = self.time() + _ROUNDING_S
        while timers and timers[0][0] < end:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except Exception as error:
                self._world.violate("callbacks succeed", f"{self._process}, loop {self.name}: {error!r}")

    def _due(self) -> float:
        """When the next iteration is due; never while the thread does not run."""
        process = self._process
        if self.is_frozen or not process.is_running:
            return math.inf
        earliest = max(self._world.now, process.busy_until)
        if self._ready:
            return earliest
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        return max(self._machine.world_time(timers[0][0]), earliest) if timers else math.inf

    def _on_wake(self) -> None:
        self._wakes_at.pop()
        if self._due() <= self._world.now + _ROUNDING_S / 2:
            self.step()
        else:
            self.wake()


def _finish(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)
