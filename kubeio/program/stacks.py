"""Stacks of this process's threads, without the values of variables."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Final

_FRAMES: Final = 40
"""Innermost frames that are shown of each stack."""


def stack_of_thread(ident: int) -> str:
    """The stack of the thread *ident*, the innermost call last; empty if it has ended."""
    frame = sys._current_frames().get(ident)
    return "".join(traceback.format_stack(frame, limit=_FRAMES)).rstrip() if frame is not None else ""


def stacks_of_threads() -> str:
    """Every thread of the process by its name, with its stack."""
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    named = sorted(
        (known.get(ident, "unknown to Python's threading"), ident) for ident in sys._current_frames()
    )
    return "\n".join(f"thread {name} ({ident}):\n{stack_of_thread(ident)}" for name, ident in named)
