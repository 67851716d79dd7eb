"""Ends a process that outlives its Lease, whatever holds up its threads: protocol 5.1.

The heartbeat's own end needs the GIL and an event loop. The kernel's timer needs neither: `kernel_timer`. A little
before, CPython writes the stacks to stderr if that takes them at once (`faulthandler.dump_traceback_later`): they name
the call that holds the GIL. They are a help, not the end: user code that uses the same function takes them away until
the next `rearm`, and nothing else. If other threads run Python meanwhile, reading the stacks may end the process by
SIGSEGV, a little early (python/cpython#140815).
"""

from __future__ import annotations

import faulthandler
import os
from typing import Final

from kubeio.clock import Clock
from kubeio.shard.kernel_timer import IS_SUPPORTED, KernelTimer
from kubeio.shard.lease_validity import LeaseValidity

LATEST: Final = 1.9
"""Durations after which the process has ended: others may have its objects after two (protocol 4)."""
_STACKS_BEFORE: Final = 0.1
"""Durations before the end at which the stacks are written."""


class ExitTimer:
    """The timer. The heartbeat sets it at each renewal under *validity* and at each of its ticks.

    While nothing runs, an old Lease may still be renewed: each tick puts the timer off. `close` turns it off; if the
    heartbeat fails it stays armed, since the process is to end then.
    """

    def __init__(self, validity: LeaseValidity, *, clock: Clock) -> None:
        self._validity = validity
        self._clock = clock
        self._kernel: KernelTimer | None = None
        self._stacks_to = -1

    def rearm(self) -> None:
        """Set the timer by the Lease as it is. Raises OSError if the kernel has no timer left, the first time."""
        now = self._clock.now()
        may_run = self._validity.holds(now) or self._validity.running > 0
        age_s = self._validity.age_s(now) if may_run else 0.0
        self._arm(max(self._validity.duration_s * LATEST - age_s, 0.001))

    def close(self) -> None:
        """Nothing runs any more, and nothing will."""
        self._disarm()
        if self._stacks_to >= 0:
            os.close(self._stacks_to)
            self._stacks_to = -1

    def _arm(self, left_s: float) -> None:
        """End the process in *left_s*, whatever its threads do; replaces what was armed before."""
        if self._stacks_to < 0:
            self._stacks_to = _open_stderr()
        if IS_SUPPORTED:
            self._kernel = self._kernel or KernelTimer()
            self._kernel.arm(left_s)
        stacks_in_s = max(left_s - self._validity.duration_s * _STACKS_BEFORE, left_s / 2)
        faulthandler.dump_traceback_later(stacks_in_s, exit=not IS_SUPPORTED, file=self._stacks_to)

    def _disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None


def _open_stderr() -> int:
    """A descriptor that never blocks: stderr opened anew, which leaves other writes as they are, or /dev/null."""
    try:
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
