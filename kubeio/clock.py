"""Time, passed in. Decisions read `now`; `wall` only fills API fields.

`now` counts suspended time (CLOCK_BOOTTIME): a laptop that slept, a virtual machine that suspended itself and a
process that was stopped find that their Lease has aged. A machine that its hypervisor stopped (pause, snapshot, live
migration) does not: its clock stands still meanwhile. Until its next renewal, at most a third of a duration later, only
the fence holds there.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds on a monotonic clock that counts suspended time; only differences mean something."""

    def wall(self) -> datetime:
        """The wall clock, in UTC: for fields of the API, never for decisions."""


class SystemClock:
    """The machine's clocks."""

    _id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        return time.clock_gettime(self._id)

    def wall(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is moved: for tests and for the replay of a history."""

    def __init__(self, now: float = 1000.0, wall: datetime | None = None) -> None:
        self._now = now
        self._wall = wall or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move forward by *seconds*; raises ValueError on a negative step."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock does not go back by {seconds} s")
        self._now += seconds


def micro_time(instant: datetime) -> str:
    """*instant* as the API's MicroTime: `2026-01-01T00:00:00.000000Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
