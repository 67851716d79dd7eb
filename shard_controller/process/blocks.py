"""Detection of a blocked event loop by a watcher beside it. Pure.

The loop counts beats; the watcher reads the count often. A gap in which the watcher itself did not run was either
suspension (nothing of this process ran) or the interpreter's lock, held by another thread that computed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockBegun:
    """The loop has not turned for *for_s* and still does not: now is the time to look at its stack."""

    for_s: float


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """A block is over; it took *took_s*. *was_seen*: a `BlockBegun` came before it, else nobody could look."""

    took_s: float
    was_seen: bool


class Blocks:
    """`look` says what begins or ends: one `BlockBegun` and one `BlockEnded` per block."""

    def __init__(self, *, blocked_s: float, longest_gap_s: float, now: float, cpu_s: float) -> None:
        self._blocked_s = blocked_s
        self._longest_gap_s = longest_gap_s
        self._beats = -1
        self._silent_since = self._looked_at = now
        self._cpu_s = cpu_s
        self._is_told = False

    def look(self, *, beats: int, now: float, cpu_s: float) -> BlockBegun | BlockEnded | None:
        """*beats* of the loop so far; *cpu_s*: what this process has computed so far, in all threads."""
        gap_s, computed_s = now - self._looked_at, cpu_s - self._cpu_s
        self._looked_at, self._cpu_s = now, cpu_s
        if gap_s > self._longest_gap_s:
            if computed_s < gap_s / 2:
                self._silent_since += gap_s  # suspended: that time is nobody's fault
            elif not self._is_told and gap_s >= self._blocked_s:
                self._beats, self._silent_since = beats, now
                return BlockEnded(gap_s, was_seen=False)
        silent_s = now - self._silent_since
        if beats != self._beats:
            self._beats, self._silent_since = beats, now
            if self._is_told:
                self._is_told = False
                return BlockEnded(silent_s, was_seen=True)
            return None
        if silent_s >= self._blocked_s and not self._is_told:
            self._is_told = True
            return BlockBegun(silent_s)
        return None
