"""Clocks of one machine: drift, jumps of the wall clock, suspension, and a hypervisor that stops it.

Four faults that differ: a suspended guest's CLOCK_BOOTTIME runs on and its CLOCK_MONOTONIC stands; of a machine that
its hypervisor stops both stand; a jump moves the wall clock alone; drift changes the pace of both.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from simulation.world import World

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Machine:
    """One machine; a `kubeio.clock.Clock`. *rate*: seconds of its clocks per second of the world."""

    def __init__(self, world: World, name: str, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.name: Final = name
        self.was_stopped_at = -1.0
        """Boot time at which a hypervisor last stopped it; -1: never."""
        self.is_running = True
        self.stood_still_at = -1.0
        """When it last did not run, in the world's time."""
        self.wakes: Final[list[Callable[[], None]]] = []
        """Called when the clocks go on, or change their pace."""
        self._world: Final = world
        self._rate = rate
        self._offset_s = offset_s
        self._since = world.now
        self._boot = self._monotonic = 100.0 + 1000.0 * world.rng(f"uptime of {name}").random()
        self._is_stopped = False

    def now(self) -> float:
        """CLOCK_BOOTTIME."""
        return self._boot if self._is_stopped else self._boot + self._passed_s()

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC: the clock of event loops."""
        return self._monotonic + self._passed_s() if self.is_running else self._monotonic

    def wall(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._world.now + self._offset_s)

    def world_time(self, monotonic: float) -> float:
        """The world's time at which `monotonic` will be *monotonic*, if the machine runs on."""
        return self._world.now + (monotonic - self.monotonic()) / self._rate

    def jump(self, seconds: float) -> None:
        """Move the wall clock."""
        self._offset_s += seconds

    def drift(self, rate: float) -> None:
        """Change the pace of the clocks."""
        self._rebase()
        self._rate = rate
        self._wake()

    def suspend(self) -> None:
        """The guest suspends itself: nothing runs, CLOCK_BOOTTIME counts."""
        self._halt(is_stopped=False)

    def stop(self) -> None:
        """The hypervisor stops it: nothing runs, and no clock knows."""
        self._halt(is_stopped=True)
        self.was_stopped_at = self.now()

    def resume(self) -> None:
        self._rebase()
        self.is_running, self._is_stopped = True, False
        self.stood_still_at = self._world.now
        self._wake()

    def _halt(self, *, is_stopped: bool) -> None:
        self._rebase()
        self.is_running, self._is_stopped = False, is_stopped

    def _rebase(self) -> None:
        self._boot, self._monotonic = self.now(), self.monotonic()
        self._since = self._world.now

    def _passed_s(self) -> float:
        return (self._world.now - self._since) * self._rate

    def _wake(self) -> None:
        for wake in self.wakes:
            wake()
