"""The controller as work under the shard's Lease: it starts while the Lease is young, and ends before it lapses.

It counts as running in `LeaseValidity`. So the heartbeat, and at last the kernel's timer, end this process, and the
controller with it, if the ends below fail: others may have the shard's objects two durations after its last renewal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from kubeio.clock import Clock
from kubeio.shard.lease_validity import LeaseValidity
from proxy.runs import ControllerProcess

log = structlog.get_logger("proxy")

_POLL_S: Final = 0.1
_KILLED_AT: Final = 0.9
"""Durations of the Lease after which SIGTERM has had its time."""


class Killable(ControllerProcess, Protocol):
    """A controller that can be ended at once."""

    def kill(self) -> None:
        """SIGKILL of its group, while `stop` waits for its end."""


class UnderLease:
    """*process*, while *validity* holds; `proxy.runs` starts and stops it."""

    def __init__(self, process: Killable, validity: LeaseValidity, *, clock: Clock) -> None:
        self._process: Final = process
        self._validity: Final = validity
        self._clock: Final = clock
        self._is_running = False

    async def start(self) -> None:
        """Start it once the Lease is young. Raises: OSError if it cannot be started."""
        await self._until(self._validity.start)
        self._is_running = True
        try:
            await self._process.start()
        except BaseException:
            self._note_ended()
            raise

    async def stop(self) -> None:
        """End it in its own time, but before the Lease lapses. Raises: StuckGroup."""
        async with asyncio.TaskGroup() as tasks:
            killing = tasks.create_task(self._kill_in_time(), name="lease of the controller")
            await self._process.stop()
            killing.cancel()
        self._note_ended()

    async def wait(self) -> int:
        """Its exit code, once it has ended, or the Lease was too old and it was ended. Raises: StuckGroup."""
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(self._process.wait(), name="controller")
            too_old = self._until(lambda now: not self._validity.holds(now))
            old = tasks.create_task(too_old, name="lease of the controller")
            await asyncio.wait({ended, old}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                log.error("controller is ended: the shard's Lease is too old")
                await self.stop()
            old.cancel()
        return ended.result()

    async def _kill_in_time(self) -> None:
        latest_s = _KILLED_AT * self._validity.duration_s
        await self._until(lambda now: self._validity.age_s(now) >= latest_s)
        self._process.kill()

    async def _until(self, holds: Callable[[float], bool]) -> None:
        while not holds(self._clock.now()):  # noqa: ASYNC110 - time passes, and another thread renews the Lease
            await asyncio.sleep(_POLL_S)

    def _note_ended(self) -> None:
        if self._is_running:
            self._is_running = False
            self._validity.end()
