"""Thread beside the event loop: logs when the loop is blocked, with its stack, and logs all stacks on SIGUSR1.

Owns the thread, the loop's beat and the signal SIGUSR1, while the scope lasts. `blocks` detects a block, `stacks`
reads the stacks. It stops nothing: `heartbeat` ends a process that makes no progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Protocol

import structlog

from kubeio.clock import Clock
from shard_controller.observe import stacks
from shard_controller.process.blocks import BlockBegun, BlockEnded, Blocks

log = structlog.get_logger("shard_controller")

_LOOKS_PER_BLOCK: Final = 5
_GAP: Final = 3
"""Looks in a row that the watcher may miss before it asks why."""


class BlockMetrics(Protocol):
    """Metrics of blocks; called from the watcher's thread."""

    def loop_blocked(self) -> None: ...
    def loop_freed(self, took_s: float) -> None: ...


class LoopWatch:
    """While the scope lasts, the running loop is watched, and SIGUSR1 writes stacks and *describe* to the log.

    A block longer than *blocked_s* plus a fifth is always seen, a shorter one than *blocked_s* never; 0 watches
    nothing. Cost: a beat of the loop and a look of the thread every *blocked_s* / 5.
    """

    def __init__(
        self,
        *,
        blocked_s: float,
        describe: Callable[[], object],
        metrics: BlockMetrics,
        clock: Clock,
    ) -> None:
        self._blocked_s = blocked_s
        self._period_s = blocked_s / _LOOKS_PER_BLOCK
        self._describe = describe
        self._metrics = metrics
        self._clock = clock
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        # the only queue whose `put` may be called from a signal handler
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)
        self._former: Callable[[int, FrameType | None], object] | int | None = None
        self._hears = False

    async def __aenter__(self) -> LoopWatch:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        if self._blocked_s:
            self._beat()
        self._thread.start()
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGUSR1, lambda number, frame: self._orders.put("tell"))
            self._hears = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hears:
            signal.signal(signal.SIGUSR1, self._former)
        if self._timer is not None:
            self._timer.cancel()
        self._orders.put("stop")
        self._thread.join(timeout=1.0)

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(self._period_s, self._beat)

    # -- the thread

    def _watch(self) -> None:
        blocks = Blocks(
            blocked_s=self._blocked_s,
            longest_gap_s=self._period_s * _GAP,
            now=self._clock.now(),
            cpu_s=time.process_time(),
        )
        while (order := self._next_order()) != "stop":
            if order == "tell":
                self._tell()
            if self._blocked_s:
                self._act(blocks.look(beats=self._beats, now=self._clock.now(), cpu_s=time.process_time()))

    def _next_order(self) -> str:
        """The next order (`tell`, `stop`); empty if none comes within a period."""
        try:
            return self._orders.get(timeout=self._period_s or None)
        except queue.Empty:
            return ""

    def _act(self, what: BlockBegun | BlockEnded | None) -> None:
        match what:
            case BlockBegun(for_s=for_s):
                stack = stacks.stack_of(self._watched)
                self._metrics.loop_blocked()
                log.warning("event loop is blocked", for_s=round(for_s, 3), stack=stack)
            case BlockEnded(took_s=took_s, was_seen=True):
                self._metrics.loop_freed(took_s)
                log.info("event loop turns again", took_s=round(took_s, 3))
            case BlockEnded(took_s=took_s):
                self._metrics.loop_blocked()
                self._metrics.loop_freed(took_s)
                why = "the interpreter's lock was held, so nobody could look who does it"
                log.warning("event loop was blocked", took_s=round(took_s, 3), why=why)
            case None:
                pass

    def _tell(self) -> None:
        """Threads now, even if the loop is blocked; tasks and the queue when the loop turns."""
        log.warning("stacks of threads, asked for by SIGUSR1", stack=stacks.threads())
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell_tasks)

    def _tell_tasks(self) -> None:
        log.warning("stacks of tasks, asked for by SIGUSR1", stack=stacks.tasks(self._loop))
        log.warning("queue, asked for by SIGUSR1", queue=self._describe())
