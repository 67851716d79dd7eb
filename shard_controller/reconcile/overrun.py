"""Overruns: reconciles that go on after they were told to end, and the end of their process.

Judges the running reconciles; called once a second. A thread and an async function that swallows its cancellation
keep their keys busy, so waiting longer would keep their objects from every replica.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from kubeio.program.logs import drain, write_text
from shard_controller.observe.stacks import awaiting, threads

log = structlog.get_logger("shard_controller")

OVERRUN_EXIT = 4


class Running(Protocol):
    """One reconcile that runs."""

    overruns_since: float | None
    is_counted: bool

    def is_told_to_end(self) -> bool:
        """Whether its time is over, or it was interrupted."""

    def is_in_code(self) -> bool:
        """Whether the user's function, or a part of it elsewhere, still runs."""

    def task(self) -> asyncio.Task[object] | None: ...


def find_overrun(
    running: Iterable[Running], *, now: float, patience_s: float, on_overrun: Callable[[], None]
) -> Running | None:
    """The reconcile that has gone on for *patience_s* since it was seen to be told to end. Pure but for its notes.

    To be called every second or so; *on_overrun* is called once for each that is still there at the second look.
    """
    worst: Running | None = None
    for run in running:
        if not (run.is_told_to_end() and run.is_in_code()):
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


def awaited_by(task: asyncio.Task[object] | None) -> list[str]:
    """Await stack of *task* as lines of a traceback, the outermost call first: asyncio itself shows only that one."""
    if task is None:
        return []
    head = f"Task {task.get_name()!r} waits at (outermost call first):\n"
    frames = ((frame.f_code, frame.f_lineno) for frame in awaiting(task))
    return [head, *(f'  File "{code.co_filename}", line {line} in {code.co_name}\n' for code, line in frames)]


def end_process(why: str, run: Running) -> None:
    """Log *why*, show every stack, and end at once with `OVERRUN_EXIT`: a thread can be ended by nothing less."""
    try:
        log.error("process ends", reason=why, exit_code=OVERRUN_EXIT)
        write_text(f"{''.join(awaited_by(run.task()))}{threads()}\n")
        drain()
    finally:
        os._exit(OVERRUN_EXIT)
