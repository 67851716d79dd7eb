"""One process of a fleet: started with its output in a file, tied to our life, and what its parent saw of it.

Owns the times that the overlap check needs: when it ended, and when a signal stopped it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.children import Child, start_child
from kubeio.clock import Clock
from ringleader.testing.availability import Span


class Process:
    """A running or ended process. All times are CLOCK_BOOTTIME."""

    def __init__(self, child: Child, *, clock: Clock) -> None:
        self.child = child
        self.started_at = clock.now()
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self._clock = clock
        self._frozen: list[Span] = []

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def is_frozen(self) -> bool:
        return bool(self._frozen) and self._frozen[-1][1] == math.inf and self.ended_at is None

    async def wait(self) -> int:
        """Its exit status (negative: the signal that ended it), noting the time; called once, by its parent."""
        self.exit_code = await self.child.wait()
        self.ended_at = self._clock.now()
        return self.exit_code

    def kill(self) -> None:
        """End it without warning (SIGKILL), frozen or not."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does (SIGSTOP)."""
        self._frozen.append((self._clock.now(), math.inf))
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on as if nothing had happened (SIGCONT)."""
        if self.is_frozen:
            self._frozen[-1] = (self._frozen[-1][0], self._clock.now())
        self._signal(signal.SIGCONT)

    def working(self) -> list[Span]:
        """When it could work: from its start to its end, without the times it was frozen."""
        spans, begin = [], self.started_at
        for stopped, woken in self._frozen:
            spans.append((begin, stopped))
            begin = woken
        return [*spans, (begin, self.ended_at if self.ended_at is not None else math.inf)]

    def rss_bytes(self) -> int:
        """Resident memory; 0 once it has ended."""
        return self.child.rss_bytes()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


async def start_process(
    command: Sequence[str], *, name: str, log: Path, environment: Mapping[str, str], clock: Clock
) -> Process:
    """Start *command* with *environment* added to ours."""
    settings = [f"{key}={value}" for key, value in environment.items()]
    child = await start_child(["/usr/bin/env", *settings, *command], name=name, log=log)
    return Process(child, clock=clock)
