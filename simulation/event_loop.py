"""Event loop of one simulated thread: asyncio's own, on its machine's clock, one iteration per event of the world.

Tasks and futures hash by the order in which they were made: sets of them iterate alike in every run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

if TYPE_CHECKING:
    from simulation.process import Process

_Ts = TypeVarTuple("_Ts")
_numbers: Final = count(1)
_ROUNDING_S: Final = 1e-6
_EXECUTOR_S: Final = 0.001
"""What a function takes on another thread."""


class _Task(asyncio.Task[Any]):
    """Task that hashes by its number."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """Future that hashes by its number."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _NoSelector:
    """No sockets: nothing to wait for."""

    def select(self, timeout: float | None) -> list[object]:
        return []


class EventLoop(asyncio.BaseEventLoop):
    """Loop of a thread of *process*. It runs while the process is neither frozen nor ended and its machine runs."""

    if TYPE_CHECKING:
        _ready: list[asyncio.Handle]
        _scheduled: list[asyncio.TimerHandle]
        _timer_cancelled_count: int

        def _run_once(self) -> None: ...

    def __init__(self, process: Process, name: str) -> None:
        super().__init__()
        self.name: Final = name
        self.is_frozen = False
        self._process: Final = process
        self._world: Final = process.world
        self._machine: Final = process.machine
        self._selector = _NoSelector()
        self._clock_resolution = _ROUNDING_S
        self._wake_at = math.inf
        self._is_stepping = False
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        """Every task that is not done: of a process that ended, nothing is collected, so nothing of it runs."""
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        return self._machine.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if not self._is_stepping:
            self.wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        if not self._is_stepping:
            self.wake()
        return timer

    def run_in_executor(  # type: ignore[override]  # typeshed: a coroutine function; asyncio: returns a future
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call *func* a moment later, in no thread: one run has one order of events."""
        future = self.create_future()
        self._world.after(_EXECUTOR_S, lambda: self.call_soon(_finish, future, func, args))
        return future

    def wake(self) -> None:
        """Have the world run an iteration when something is due."""
        due = self._due()
        if due < self._wake_at:
            self._wake_at = due
            self._world.at(due, lambda: self._on_wake(due))

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
        if not self._process.has_ended:
            self._process.count_step()
            self.wake()

    def forget_tasks(self) -> None:
        """After the run: what is left of its process may be collected."""
        self._tasks.clear()

    def _due(self) -> float:
        """When the next iteration is due; never while the thread does not run."""
        if self.is_frozen or not self._process.is_running:
            return math.inf
        earliest = self._process.busy_until
        if self._ready:
            return max(self._world.now, earliest)
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]  # as `_run_once` does
            self._timer_cancelled_count -= 1
        if not self._scheduled:
            return math.inf
        return max(self._machine.world_time(self._scheduled[0].when()), self._world.now, earliest)

    def _on_wake(self, due: float) -> None:
        if due != self._wake_at:
            return  # an earlier event, or one after a pause, has taken its place
        self._wake_at = math.inf
        if self._due() <= self._world.now + _ROUNDING_S / 2:
            self.step()
        else:
            self.wake()

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **kwargs: Any,
    ) -> asyncio.Task[Any]:
        task = _Task(coro, loop=loop, **kwargs)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _process_events(self, event_list: list[object]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """`call_soon` wakes the loop."""


def _finish(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)
