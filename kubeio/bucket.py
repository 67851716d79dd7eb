"""Token bucket: a few at once, then so many a second. Pure.

Used where something outside decides how much there is to do: reports of names, changes of Leases.
"""

from __future__ import annotations

from typing import Final

_GRAIN_S: Final = 1e-6


class TokenBucket:
    """At most *burst* at once, and *per_s* a second in the long run; full at first."""

    __slots__ = ("_burst", "_full_at", "_per_s")

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._full_at = float("-inf")

    def wait_s(self, now: float) -> float:
        """Seconds until a token is there; 0 if there is one."""
        left_s = self._full_at - now - (self._burst - 1) / self._per_s
        return left_s if left_s > _GRAIN_S else 0.0

    def take(self, now: float) -> bool:
        """Take a token; false if there is none."""
        if self.wait_s(now) > 0:
            return False
        self._full_at = max(self._full_at, now) + 1 / self._per_s
        return True
