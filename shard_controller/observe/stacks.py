"""Stacks of all threads and asyncio tasks at this moment, as text. Reads, never changes.

The text goes to the log, so it never shows the values of variables.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType

from shard_controller.observe.eager import continued_by

_FRAMES = 40
"""Innermost frames that are shown of each stack."""
_TASKS = 200


def stack_of(thread: int) -> str:
    """The stack of the thread with the identity *thread*, the innermost call last; empty if it has ended."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else _stack(frame)


def threads() -> str:
    """Every thread of the process by its name, with its stack."""
    frames = sys._current_frames()
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    named = sorted((known.get(ident, "unknown to Python's threading"), ident) for ident in frames)
    return "\n".join(f"thread {name} ({ident}):\n{_stack(frames[ident])}" for name, ident in named)


def tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Every task of *loop* that has not ended, by its name, with the place where it waits. To be called on the loop."""
    waiting = sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name)
    shown = [f"task {task.get_name()}:\n{_stack_of_task(task)}" for task in waiting[:_TASKS]]
    if len(waiting) > _TASKS:
        shown.append(f"and {len(waiting) - _TASKS} more tasks")
    return "\n".join(shown)


def _stack(frame: FrameType) -> str:
    return "".join(traceback.format_stack(frame, limit=_FRAMES)).rstrip()


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


def _stack_of_task(task: asyncio.Task[object]) -> str:
    frames = list(islice(awaiting(task), _FRAMES))
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "".join(summary.format()).rstrip()
