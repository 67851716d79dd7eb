"""Keeps one controller running: starts it again when it ends by itself, and holds it ended while objects change hands.

Owns when a process runs. Why it must not run, and what happens meanwhile, is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Never

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import Clock
from proxy.child import Child, start_child

log = structlog.get_logger("proxy")


class Supervisor:
    """Runs *command* with *environment*, one process at a time; it is held until the first `resume`.

    *on_start* is called before each start: locks are forgotten there. *grace_s* lies between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        on_start: Callable[[], None],
        backoff: ExponentialBackoff,
        clock: Clock,
        grace_s: float,
    ) -> None:
        self._command = command
        self._environment = environment
        self._on_start = on_start
        self._backoff = backoff
        self._clock = clock
        self._grace_s = grace_s
        self._child: Child | None = None
        self._wanted = asyncio.Event()
        self._held = asyncio.Event()
        self._none_runs = asyncio.Event()
        self._held.set()
        self._none_runs.set()

    @property
    def pid(self) -> int | None:
        """Process id of the controller; None while none runs."""
        return self._child.pid if self._child is not None else None

    def resume(self) -> None:
        """Let the controller run from now on."""
        self._held.clear()
        self._wanted.set()

    async def hold(self) -> None:
        """End the controller; when this returns nothing of it runs, and nothing starts until `resume`."""
        self._wanted.clear()
        self._held.set()
        await self._none_runs.wait()

    async def run(self) -> Never:
        """Supervise until cancelled; the controller is ended first.

        Raises: OSError if the command cannot be started; StuckGroup if processes survive SIGKILL.
        """
        while True:
            await self._wanted.wait()
            self._none_runs.clear()
            try:
                code = await self._run_once()
            finally:
                self._child = None
                self._none_runs.set()
            if self._wanted.is_set():
                pause_s = self._backoff.failed(self._clock.now())
                log.warning("controller ended by itself", exit_code=code, starts_again_in_s=round(pause_s, 1))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._held.wait(), pause_s)

    async def _run_once(self) -> int:
        """From start to end of one process, with all that it left behind; its exit code."""
        self._on_start()
        child = self._child = await start_child(self._command, environment=self._environment)
        log.info("controller started", pid=child.pid)
        try:
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(
                    self._end_when_held(child), name="end the controller when it is held"
                )
                await child.wait()
                if not self._held.is_set():
                    ending.cancel()
        except BaseException:
            await child.end(grace_s=self._grace_s)
            raise
        return await child.end(grace_s=0)

    async def _end_when_held(self, child: Child) -> None:
        await self._held.wait()
        await child.end(grace_s=self._grace_s)
