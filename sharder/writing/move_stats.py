"""Moves of objects from one shard to another since the ring last changed: their number and their time. Pure."""

from __future__ import annotations


class MoveStats:
    """Moves of objects of distributed kinds, without what they control; the writer of objects notes them."""

    def __init__(self) -> None:
        self.count = 0
        self.first_at = 0.0
        self.last_at = 0.0

    def note(self, *, at: float) -> None:
        """One more was given to its next shard, or its owner was asked to pass it on."""
        if not self.count:
            self.first_at = at
        self.count += 1
        self.last_at = at

    def begin_anew(self) -> None:
        """Begin the count anew after a change of the ring."""
        self.count = 0

    def took_s(self, *, answered_at: float) -> float:
        """From the first move to the last, or to *answered_at*, when an owner last passed an object on."""
        return max(self.last_at, answered_at) - self.first_at if self.count else 0.0
