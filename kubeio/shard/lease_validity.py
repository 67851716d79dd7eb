"""Validity of the shard's own Lease: its age, what runs under it, and whether work may start or must have ended. Pure.

`heartbeat` renews it on its thread; the main thread counts what runs. Both are single stores, so no lock.
The clock counts suspended time: a process that was suspended finds its Lease's validity over.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    HELD = "held"  # work may start
    PAUSED = "paused"  # 2/3 of the duration passed: start nothing, cancel what runs
    LAPSED = "lapsed"  # the whole duration passed: whatever still runs must not


class LeaseValidity:
    """Time since the last successful renewal was *sent*, against the Lease's duration; `running` keys work under it."""

    __slots__ = ("duration_s", "running", "sent_at")

    def __init__(self, *, duration_s: float, sent_at: float) -> None:
        self.duration_s = duration_s
        self.sent_at = sent_at
        self.running = 0
        """Keys that are being handled right now."""

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

    def start(self, now: float) -> bool:
        """Count one more key as running if work may start; `end` must follow exactly if the answer is True.

        The count comes before the check. In the other order the heartbeat could read in between, see nothing
        running, and let the Lease lapse while work is about to start.
        """
        self.running += 1
        if self.holds(now):
            return True
        self.running -= 1
        return False

    def end(self) -> None:
        """A key that `start` counted is done."""
        self.running -= 1
