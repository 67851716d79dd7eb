"""Watchdogs of a replica: a blocked event loop, reconciles that cannot be stopped, and stacks of tasks.

The runtime looks for overruns once a second, `LoopBlockReporter` has a thread
beside the loop.
Stacks go to the log, so they never show the values of variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import FrameType, TracebackType
from typing import Final, Protocol

import structlog

from kubeio.clock import Clock
from kubeio.program.logs import drain, write_text
from kubeio.program.stacks import stack_of_thread, stacks_of_threads
from shard_controller.observe.eager import continued_by
from shard_controller.observe.metrics import ControllerMetrics

log = structlog.get_logger("shard_controller")

OVERRUN_EXIT: Final = 4
_CHECKS_PER_BLOCK: Final = 5
_GAP: Final = 3
"""Checks in a row that the watching thread may miss before it asks why."""
_FRAMES: Final = 40
"""Innermost frames that are shown of each stack."""
_TASKS: Final = 200


# -- overruns: an object whose reconcile does not end is kept from every replica


class RunningReconcile(Protocol):
    """One reconcile that runs. *overruns_since*, *is_counted*: notes of `find_overrun`."""

    overruns_since: float | None
    is_counted: bool
    in_task: asyncio.Task[object] | None

    @property
    def overruns(self) -> bool:
        """Whether the user's function still runs although it was cancelled."""


def find_overrun(
    running: Iterable[RunningReconcile], *, now: float, patience_s: float, on_overrun: Callable[[], None]
) -> RunningReconcile | None:
    """The reconcile that has gone on for *patience_s* since it was first seen to overrun. Runs every second.

    *on_overrun* is called once for each that is still there at the second check.
    """
    worst: RunningReconcile | None = None
    for run in running:
        if not run.overruns:
            continue
        if run.overruns_since is None:
            run.overruns_since = now
            continue
        if not run.is_counted:
            run.is_counted = True
            on_overrun()
        if now - run.overruns_since >= patience_s:
            worst = run
    return worst


def exit_on_overrun(why: str, run: RunningReconcile, *, end_process: Callable[[int], None]) -> None:
    """Log *why* and every stack, and end at once with `OVERRUN_EXIT`: a thread can be ended by nothing less."""
    try:
        log.error("process ends", reason=why, exit_code=OVERRUN_EXIT)
        write_text(f"{stack_of_task(run.in_task) if run.in_task else ''}\n{stacks_of_threads()}\n")
        drain()
    finally:
        end_process(OVERRUN_EXIT)


# -- a blocked event loop


@dataclass(frozen=True, slots=True)
class BlockBegun:
    """The loop has not run for *for_s* and still does not: its stack shows the reason now."""

    for_s: float


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """A block is over; it took *took_s*. *was_seen*: a `BlockBegun` came before it."""

    took_s: float
    was_seen: bool


class BlockDetector:
    """Compares the loop's beats between checks: one `BlockBegun` and one `BlockEnded` per block. Pure.

    A gap in which the watcher itself did not run was either suspension (nothing of this process ran) or
    the interpreter's lock, held by another thread that computed meanwhile.
    """

    def __init__(self, *, blocked_s: float, longest_gap_s: float, now: float, cpu_s: float) -> None:
        self._blocked_s = blocked_s
        self._longest_gap_s = longest_gap_s
        self._beats = -1
        self._silent_since = self._checked_at = now
        self._cpu_s = cpu_s
        self._is_blocked = False

    def check(self, *, beats: int, now: float, cpu_s: float) -> BlockBegun | BlockEnded | None:
        """*beats* of the loop so far; *cpu_s*: processor time of this process so far, in all threads."""
        gap_s, computed_s = now - self._checked_at, cpu_s - self._cpu_s
        self._checked_at, self._cpu_s = now, cpu_s
        if gap_s > self._longest_gap_s:
            if computed_s < gap_s / 2:
                self._silent_since += gap_s  # suspended
            elif not self._is_blocked and gap_s >= self._blocked_s:
                self._beats, self._silent_since = beats, now
                return BlockEnded(gap_s, was_seen=False)
        silent_s = now - self._silent_since
        if beats != self._beats:
            self._beats, self._silent_since = beats, now
            was_blocked, self._is_blocked = self._is_blocked, False
            return BlockEnded(silent_s, was_seen=True) if was_blocked else None
        if silent_s >= self._blocked_s and not self._is_blocked:
            self._is_blocked = True
            return BlockBegun(silent_s)
        return None


class LoopBlockReporter:
    """Watches the running loop while the scope lasts; SIGUSR1 writes stacks and *describe* to the log.

    A block longer than *blocked_s* plus a fifth is always seen, a shorter one than *blocked_s* never; 0 watches
    nothing. Cost: a beat of the loop and a check of the thread every *blocked_s* / 5. Stops nothing.
    """

    def __init__(
        self, *, blocked_s: float, describe: Callable[[], object], metrics: ControllerMetrics, clock: Clock
    ) -> None:
        self._blocked_s = blocked_s
        self._period_s = blocked_s / _CHECKS_PER_BLOCK
        self._describe = describe
        self._metrics = metrics
        self._clock = clock
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        # the only queue whose `put` may be called from a signal handler
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)
        self._former: Callable[[int, FrameType | None], object] | int | None = None

    async def __aenter__(self) -> LoopBlockReporter:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        if self._blocked_s:
            self._beat()
        self._thread.start()
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGUSR1, lambda number, frame: self._orders.put("dump"))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._former is not None:
            signal.signal(signal.SIGUSR1, self._former)
        if self._timer is not None:
            self._timer.cancel()
        self._orders.put("stop")
        self._thread.join(timeout=1.0)

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(self._period_s, self._beat)

    def _watch(self) -> None:
        """Of the thread: check once per period, and follow orders."""
        blocks = BlockDetector(
            blocked_s=self._blocked_s,
            longest_gap_s=self._period_s * _GAP,
            now=self._clock.now(),
            cpu_s=time.process_time(),
        )
        while True:
            order = ""
            with contextlib.suppress(queue.Empty):
                order = self._orders.get(timeout=self._period_s or None)
            if order == "stop":
                return
            if order == "dump":
                self._dump()
            if self._blocked_s:
                self._report(
                    blocks.check(beats=self._beats, now=self._clock.now(), cpu_s=time.process_time())
                )

    def _report(self, block: BlockBegun | BlockEnded | None) -> None:
        match block:
            case BlockBegun(for_s=for_s):
                self._metrics.loop_blocked()
                stack = stack_of_thread(self._watched)
                log.warning("event loop is blocked", for_s=round(for_s, 3), stack=stack)
            case BlockEnded(took_s=took_s, was_seen=True):
                self._metrics.loop_freed(took_s)
                log.info("event loop runs again", took_s=round(took_s, 3))
            case BlockEnded(took_s=took_s):
                self._metrics.loop_blocked()
                self._metrics.loop_freed(took_s)
                why = "another thread held the interpreter's lock, so the stack is unknown"
                log.warning("event loop was blocked", took_s=round(took_s, 3), why=why)
            case None:
                pass

    def _dump(self) -> None:
        """Threads now, even if the loop is blocked; tasks and the queue when the loop runs."""
        log.warning("stacks of threads, asked for by SIGUSR1", stack=stacks_of_threads())
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._dump_tasks)

    def _dump_tasks(self) -> None:
        log.warning("stacks of tasks, asked for by SIGUSR1", stack=stacks_of_tasks(self._loop))
        log.warning("queue, asked for by SIGUSR1", queue=self._describe())


# -- stacks


def stacks_of_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Every task of *loop* that has not ended, by its name, with the place where it waits. Runs on the loop."""
    waiting = sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name)
    shown = [stack_of_task(task) for task in waiting[:_TASKS]]
    if len(waiting) > _TASKS:
        shown.append(f"and {len(waiting) - _TASKS} more tasks")
    return "\n".join(shown)


def stack_of_task(task: asyncio.Task[object]) -> str:
    """*task* by its name, and its calls from the outermost to the place where it waits."""
    frames = ((frame, frame.f_lineno) for frame in islice(awaiting(task), _FRAMES))
    calls = "".join(traceback.StackSummary.extract(frames).format()).rstrip()
    return f"task {task.get_name()}:\n{calls}"


def awaiting(task: asyncio.Task[object]) -> Iterator[FrameType]:
    """The frames from the outermost call of *task* to the place where it waits; asyncio itself shows only the first."""
    awaited: object = task.get_coro()
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                break
        else:
            return
        further = "gi_yieldfrom" if kind == "gi" else f"{kind}_await"
        awaited = continued_by(awaited) or getattr(awaited, further, None)
