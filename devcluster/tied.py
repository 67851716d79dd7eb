"""Run a command that dies with its parent: `python -I -S tied.py PARENT_PID COMMAND ARGUMENT...`.

A program of its own, never imported: it asks the kernel to kill this process when the parent ends,
even by SIGKILL, and becomes the command. The request survives exec; a fork made by Python could not make it
safely in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request was made
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
