"""Validity of the shard's own Lease: its age, and whether work may start or must have ended. Pure.

Owned by `heartbeat`, which alone writes it; read from the main thread (one float, so no lock).
The clock counts suspended time: a process that was suspended finds its Lease's validity over.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    HELD = "held"  # work may start
    PAUSED = "paused"  # 2/3 of the duration passed: start nothing, cancel what runs
    LAPSED = "lapsed"  # the whole duration passed: whatever still runs must not


class LeaseValidity:
    """Time since the last successful renewal was *sent*, against the Lease's duration."""

    __slots__ = ("duration_s", "sent_at")

    def __init__(self, *, duration_s: float, sent_at: float) -> None:
        self.duration_s = duration_s
        self.sent_at = sent_at

    def renewed(self, *, sent_at: float) -> None:
        """A renewal that was sent at *sent_at* succeeded."""
        self.sent_at = max(self.sent_at, sent_at)

    def age_s(self, now: float) -> float:
        return now - self.sent_at

    def holds(self, now: float) -> bool:
        """Whether work may start. Asked several times per reconcile."""
        return now - self.sent_at < self.duration_s * 2 / 3

    def phase(self, now: float) -> Phase:
        if self.holds(now):
            return Phase.HELD
        return Phase.PAUSED if self.age_s(now) < self.duration_s else Phase.LAPSED

    @property
    def renew_at(self) -> float:
        """Time at which the next renewal is due: 1/3 of the duration after the last success was sent."""
        return self.sent_at + self.duration_s / 3


class InFlight:
    """Number of keys being handled right now. The main thread writes, the heartbeat's thread reads.

    `start` counts before it checks the Lease. In the other order the heartbeat could read in between, see nothing
    running, and let the Lease lapse while work is about to start.
    """

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running = 0

    def start(self, validity: LeaseValidity, now: float) -> bool:
        """Count one more as running if *validity* allows it; `end` must follow exactly if this says True."""
        self.running += 1
        if validity.holds(now):
            return True
        self.running -= 1
        return False

    def end(self) -> None:
        self.running -= 1
