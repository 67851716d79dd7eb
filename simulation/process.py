"""One simulated process: its threads, its end, and what can be done to it from outside."""

from __future__ import annotations

import asyncio
import contextvars
import math
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kubeio.program.failures import exit_code_of, unforeseen
from simulation.event_loop import EventLoop
from simulation.machine import Machine
from simulation.world import World

KILLED: Final = -9
_NOTICES_S: Final = 2.0
"""So long after it stood still a process may not have noticed it."""
_STEP_S: Final = 2e-6
"""What an iteration of a loop takes: code that asks for the time again and again sees it go on."""
present: Final = contextvars.ContextVar("process", default="")
"""The process whose code runs."""


class ProcessEnded(SystemExit):
    """Unwinds the code that ended its process; nothing of it runs again."""


class Process:
    """A process of *machine*. *on_end* gets it when it has ended."""

    def __init__(
        self, world: World, machine: Machine, name: str, *, pid: int, on_end: Callable[[Process], None]
    ) -> None:
        self.world: Final = world
        self.machine: Final = machine
        self.name: Final = name
        self.pid: Final = pid
        self.rng: Final = world.rng(f"process {name}/{pid}")
        self.started_at: Final = world.now
        self.exit_code: int | None = None
        self.stood_still_at = -math.inf
        """When it, or a part of it, last did not run, or ran slowly."""
        self.is_frozen = False
        self.read_leases_at = math.inf
        """When a server first answered it what a Lease, or all of them, is."""
        self.busy_until = 0.0
        self.slow_s = 0.0
        """Mean time that each iteration of a loop takes; 0: none."""
        self.loops: Final[list[EventLoop]] = []
        self._context: Final = contextvars.copy_context()
        self._context.run(present.set, str(self))
        self._on_end: Final = on_end
        self._main: asyncio.Task[int | None] | None = None
        self._was_asked_to_stop = False
        self.main_loop: Final = self.new_loop("main")

    def __str__(self) -> str:
        return f"{self.name}/{self.pid}"

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def is_running(self) -> bool:
        return not self.has_ended and not self.is_frozen and self.machine.is_running

    @property
    def runs_well(self) -> bool:
        """Whether every thread of it has run, and at its usual pace, for some seconds."""
        is_whole = self.is_running and not self.slow_s and not any(loop.is_frozen for loop in self.loops)
        still_at = max(self.stood_still_at, self.machine.stood_still_at)
        return is_whole and self.world.now - still_at > _NOTICES_S

    def new_loop(self, name: str) -> EventLoop:
        """A loop for another thread."""
        loop = EventLoop(self, name)  # type: ignore[abstract]  # the rest of asyncio's is for sockets and signals
        self.loops.append(loop)
        self.machine.wakes.append(loop.wake)
        return loop

    def start(self, main: Coroutine[Any, Any, int | None]) -> None:
        """Run *main* on the main thread; its end is the process's."""
        self._main = self.main_loop.create_task(main, name="main", context=self._context)
        self._main.add_done_callback(self._main_done, context=self._context)

    def deliver(self, loop: EventLoop, function: Callable[..., object], *args: object) -> None:
        """Call *function* on *loop*, if the process still lives: bytes have come, for example."""
        if not self.has_ended and not loop.is_closed():
            loop.call_soon(function, *args, context=self._context)

    def count_step(self) -> None:
        """An iteration of a loop is over: it took its time, a slow process more of it."""
        took_s = _STEP_S if not self.slow_s else self.rng.expovariate(1 / self.slow_s)
        self.busy_until = self.world.now + took_s

    def speed_up(self) -> None:
        """Iterations take no time any more."""
        self.slow_s = 0.0
        self.stood_still_at = self.world.now

    # -- signals

    def terminate(self) -> None:
        """SIGTERM; a second one ends it at once, as `kubeio.program.runtime` does."""
        if self._main is not None:
            self.deliver(self.main_loop, self._stop, self._main)

    def _stop(self, main: asyncio.Task[int | None]) -> None:
        if self._was_asked_to_stop:
            self.end(128 + signal.SIGTERM)
            raise ProcessEnded
        self._was_asked_to_stop = True
        main.cancel()

    def kill(self) -> None:
        """SIGKILL."""
        self.end(KILLED)

    def freeze(self, loop: EventLoop | None = None) -> None:
        """SIGSTOP, or one thread alone that stands still."""
        if loop is None:
            self.is_frozen = True
        else:
            loop.is_frozen = True

    def thaw(self) -> None:
        """SIGCONT, and every thread goes on."""
        self.is_frozen = False
        self.stood_still_at = self.world.now
        for loop in self.loops:
            loop.is_frozen = False
            loop.wake()

    def end(self, code: int) -> None:
        """End at once: nothing is cleaned up, nothing runs again."""
        if self.exit_code is not None:
            return
        self.exit_code = code
        for loop in self.loops:
            self.machine.wakes.remove(loop.wake)
        self.world.note(f"{self} ends with {code}")
        self._on_end(self)

    def _main_done(self, task: asyncio.Task[int | None]) -> None:
        if task.cancelled():
            self.end(0)
        elif (error := task.exception()) is None:
            self.end(task.result() or 0)
        else:
            for each in unforeseen(error):
                self.world.violate("exceptions are foreseen", f"{self} ends by {each!r}")
            self.end(exit_code_of(error))
        raise ProcessEnded
