"""A timer of the kernel that ends the process: no thread, no GIL and no line of Python take part.

It sends SIGSTKFLT, which Linux itself never sends. The signal's handler is libc's `_exit`, so its number is the exit
code. The default action would not do: the kernel ignores it for PID 1, which a container's process is
(pid_namespaces(7)). SIGALRM, with `signal.setitimer`, is left to user code. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

EXIT_CODE: Final = 16
"""SIGSTKFLT."""
IS_SUPPORTED: Final = sys.platform == "linux"
_CLOCK_MONOTONIC: Final = 1
_SIGEV_SIGNAL: Final = 0


class _Event(ctypes.Structure):
    """struct sigevent: 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: the interval, 0, and the time left."""

    _fields_ = (("interval", ctypes.c_long * 2), ("left", ctypes.c_long * 2))


class KernelTimer:
    """One timer of this process, which may have many; not armed yet. `close` frees it.

    The time left runs on while the process is stopped (SIGSTOP), not while the machine sleeps. A child process has no
    part in it. Raises OSError if the kernel has no timer left (RLIMIT_SIGPENDING).
    """

    def __init__(self) -> None:
        # glibc before 2.34 has timer_create in librt; later ones and musl find it there, too
        self._libc = ctypes.CDLL("librt.so.1", use_errno=True)
        self._libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        self._libc.signal.restype = ctypes.c_void_p
        self._libc.signal(signal.SIGSTKFLT, ctypes.cast(self._libc._exit, ctypes.c_void_p))
        self._timer = ctypes.c_void_p()
        event = _Event(None, signal.SIGSTKFLT, _SIGEV_SIGNAL)
        self._check(self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)))

    def arm(self, left_s: float) -> None:
        """End the process in *left_s* seconds, above 0, instead of when it was to end before. 2 us."""
        seconds, nanoseconds = divmod(int(left_s * 1e9), 1_000_000_000)
        setting = _Setting((0, 0), (seconds, nanoseconds))
        self._check(self._libc.timer_settime(self._timer, 0, ctypes.byref(setting), None))

    def close(self) -> None:
        """The process is not to end; nothing may follow."""
        self._check(self._libc.timer_delete(self._timer))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            error = ctypes.get_errno()
            why = os.strerror(error)
            raise OSError(
                error, f"no timer of the kernel: {why}; raise the limit of pending signals (ulimit -i)"
            )
