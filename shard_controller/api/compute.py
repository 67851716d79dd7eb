"""Work of a processor beside the event loop: pure functions in processes of their own.

Owns the pool: made on first use, made anew after it broke. `context` owns the reconciles that wait for an answer.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import ParamSpec, TypeVar

import structlog

from kubeio.errors import InputError

log = structlog.get_logger("shard_controller")

P = ParamSpec("P")
R = TypeVar("R")


class ComputePool:
    """At most *workers* processes, started by `spawn`; 0: as many as this process may use processors."""

    def __init__(self, workers: int = 0) -> None:
        self._workers = workers or _processors()
        self._free = asyncio.Semaphore(
            self._workers
        )  # the executor itself takes more than it has processes for
        self._executor: ProcessPoolExecutor | None = None

    async def run(
        self,
        function: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run *function* in a process of the pool, and return its result.

        A call that is cancelled before it began never begins. A running call cannot be stopped: this coroutine
        waits for its answer and drops it.
        Raises: errors of *function*; BrokenExecutor if its process died, and the next call has a new pool.
        """
        check_computable(function)
        async with self._free:
            answer = asyncio.wrap_future(self._submit(function, *args, **kwargs))
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await _ended(answer)
                raise

    def close(self) -> None:
        """Start nothing more, and let the processes go."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def _submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        executor = self._executor or self._start()
        try:
            return executor.submit(function, *args, **kwargs)
        except BrokenExecutor:  # an earlier call, or nobody, was told
            self.close()
            return self._start().submit(function, *args, **kwargs)

    def _start(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(self._workers, mp_context=spawn, initializer=_follow_parent)
        log.debug("compute pool started", workers=self._workers)
        return self._executor


def check_computable(function: Callable[..., object]) -> None:
    """Raises: InputError unless another process can find *function* by its name and call it."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.iscoroutinefunction(function):
        raise InputError("ctx.compute", name, "is async", "give a plain function")
    if "<locals>" in name or "<lambda>" in name:
        raise InputError(
            "ctx.compute",
            name,
            "cannot be found by another process",
            "define it at the top of a module, and hand it what it needs",
        )


async def _ended(answer: asyncio.Future[R]) -> None:
    """Wait until *answer* is there, however often that is cancelled."""
    while not answer.done():
        try:
            await asyncio.wait({answer})
        except asyncio.CancelledError:
            continue
    if not answer.cancelled():
        answer.exception()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _follow_parent() -> None:
    """In a new process: end with the one that started it, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(0)

    threading.Thread(target=wait, name="parent watch", daemon=True).start()
