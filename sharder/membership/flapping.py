"""Members whose shards are short-lived, one after the other: the wait of the next shard for its place. Pure.

Owned by `sharder.membership.membership`. After a single crash the member's next shard gets the place directly. A
member that crashes again and again would hold its share of the objects without working on them: each short-lived shard
doubles the wait, as routers damp routes that flap. A shard of ordinary lifetime, or enough time, resets it.
"""

from __future__ import annotations

from typing import Final

SHORT_DURATIONS: Final = 4
"""A shard is short-lived if it lasted less than this many durations of its Lease: a minute of the usual 15 s."""
FREE: Final = 1
"""This many short-lived shards in a row cost nothing: every process may crash once while it starts."""
LONGEST_WAIT_S: Final = 300.0
"""The longest wait of a kubelet before it starts a crashing container again."""
FORGOTTEN_AFTER_S: Final = 2 * LONGEST_WAIT_S


class Flapping:
    """Short-lived shards in a row, by member; instants are of the sharder's monotonic clock."""

    def __init__(self) -> None:
        self._short: dict[str, tuple[int, float]] = {}

    def note_end(self, member: str, *, lived_s: float, duration_s: float, at: float) -> None:
        """A shard of *member* ended at *at*; it last renewed *lived_s* after it began."""
        if lived_s >= SHORT_DURATIONS * duration_s:
            self._short.pop(member, None)
        else:
            count, _ = self._short.get(member, (0, at))
            self._short[member] = (count + 1, at)

    def wait_s(self, member: str, *, settle_s: float) -> float:
        """Age in seconds that a shard of *member* must reach before it gets a place."""
        count, _ = self._short.get(member, (0, 0.0))
        doublings = min(count - FREE, 30)
        return min(settle_s * 2.0**doublings, LONGEST_WAIT_S) if doublings > 0 else 0.0

    def forget(self, *, now: float) -> None:
        """Drop members without a short-lived shard for long enough."""
        if self._short:
            horizon = now - FORGOTTEN_AFTER_S
            self._short = {member: entry for member, entry in self._short.items() if entry[1] > horizon}
