"""Gates: work may start only while the gate is open. They are the main loop's side of the Lease.

`ShardGate` follows a `LeaseValidity` that the heartbeat's thread renews; `OpenGate` is for modes without a shard
Lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from kubeio.clock import Clock
from shard_controller.shard.lease_validity import InFlight, LeaseValidity, Phase


class Gate(Protocol):
    async def wait_open(self) -> None:
        """Returns while work may start."""

    def is_open(self) -> bool:
        """Whether work may start now."""

    def start(self) -> bool:
        """Count one more as running, if that is allowed; then `end` must follow."""

    def end(self) -> None: ...


class OpenGate:
    """Always open."""

    async def wait_open(self) -> None: ...

    def is_open(self) -> bool:
        return True

    def start(self) -> bool:
        return True

    def end(self) -> None: ...


class ShardGate:
    """Open while the Lease is younger than 2/3 of its duration, by the clock and not by messages."""

    def __init__(self, validity: LeaseValidity, in_flight: InFlight, clock: Clock) -> None:
        self._validity = validity
        self._in_flight = in_flight
        self._clock = clock
        self._opened = asyncio.Event()

    async def wait_open(self) -> None:
        while not self.is_open():
            self._opened.clear()
            # by the clock as well: a spell too short for the heartbeat to notice brings no message
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._validity.duration_s / 10):
                    await self._opened.wait()

    def is_open(self) -> bool:
        return self._validity.holds(self._clock.now())

    def start(self) -> bool:
        return self._in_flight.start(self._validity, self._clock.now())

    def end(self) -> None:
        self._in_flight.end()

    def follow(self, phase: Phase) -> None:
        """The heartbeat saw *phase*."""
        if phase is Phase.HELD:
            self._opened.set()
