"""Progress of a process: a heartbeat must not outlive the work (protocol, 5.1)."""

from __future__ import annotations

from typing import Final

from kubeio.clock import Clock

TICK_S: Final = 1.0
_LONGEST_GAP_S: Final = 2.0
"""Longest time between two checks that counts: longer ones were suspension."""


class StallDetector:
    """Signs of life of the main loop, and what has stood still for longer than *deadline_s*.

    The main loop calls `tick`, the heartbeat's thread calls `check`. Ages are counted in ticks of the caller, so that
    a suspended process does not wake up "stalled".
    """

    def __init__(self, *, deadline_s: float, clock: Clock) -> None:
        self._deadline_s = deadline_s
        self._clock = clock
        self._checked_at = clock.now()
        self._ticks = self._seen_ticks = 0
        self._stuck_ticks = self._stale_ticks = 0
        self._taken = -1
        self._silent_s = 0.0

    def tick(self, *, due: int, taken: int, is_fresh: bool, is_held: bool) -> None:
        """Record progress every `TICK_S`: *due* keys wait, *taken* keys went to workers so far, all streams are fresh.

        Without a Lease that is held neither counts, since then nothing may move.
        """
        has_moved = due == 0 or taken != self._taken
        self._taken = taken
        self._stuck_ticks = 0 if has_moved or not is_held else self._stuck_ticks + 1
        self._stale_ticks = 0 if is_fresh or not is_held else self._stale_ticks + 1
        self._ticks += 1

    def check(self) -> tuple[str, float] | None:
        """The first part that stood still for longer than the deadline, and for how many seconds; None: all move."""
        now = self._clock.now()
        awake_s = min(now - self._checked_at, _LONGEST_GAP_S)
        self._checked_at = now
        if self._ticks != self._seen_ticks:
            self._seen_ticks, self._silent_s = self._ticks, 0.0
        else:
            self._silent_s += awake_s
        for what, for_s in (
            ("event loop did not tick", self._silent_s),
            ("oldest due key did not move", self._stuck_ticks * TICK_S),
            ("watch streams were silent", self._stale_ticks * TICK_S),
        ):
            if for_s > self._deadline_s:
                return what, for_s
        return None
