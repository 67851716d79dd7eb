"""Whether the process still works: a heartbeat must not outlive the work (protocol, 5.1). Pure.

The main loop writes a `Pulse` once a second; the heartbeat's thread judges it. Ages are counted in ticks
of whoever counts, not read off a clock, so that a suspended process does not wake up "stalled".
"""

from __future__ import annotations

from kubeio.clock import Clock

TICK_S = 1.0


class Pulse:
    """Signs of life of the main loop."""

    __slots__ = ("_handed_over", "stale_ticks", "stuck_ticks", "ticks")

    def __init__(self) -> None:
        self.ticks = 0
        self.stuck_ticks = 0
        self.stale_ticks = 0
        self._handed_over = -1

    def tick(self, *, due: int, handed_over: int, is_fresh: bool, is_held: bool) -> None:
        """Called by the main loop every `TICK_S`.

        *due* keys wait; *handed_over* of them went to workers so far; the streams are fresh or not;
        without a Lease that is held neither counts, since then nothing may move.
        """
        moved = due == 0 or handed_over != self._handed_over
        self._handed_over = handed_over
        self.stuck_ticks = 0 if moved or not is_held else self.stuck_ticks + 1
        self.stale_ticks = 0 if is_fresh or not is_held else self.stale_ticks + 1
        self.ticks += 1


class Watchdog:
    """The judge: `check` says what has stood still for longer than the deadline."""

    def __init__(self, pulse: Pulse, *, deadline_s: float, clock: Clock, longest_gap_s: float = 2.0) -> None:
        self._pulse = pulse
        self._deadline_s = deadline_s
        self._clock = clock
        self._longest_gap_s = longest_gap_s
        self._checked_at = clock.now()
        self._ticks = pulse.ticks
        self._silent_s = 0.0

    def check(self) -> tuple[str, float] | None:
        """The first part that stood still for longer than the deadline, and for how many seconds; None: all move.

        To be called every second or so. A gap between two calls counts for *longest_gap_s* at most: longer ones were
        suspension.
        """
        now = self._clock.now()
        awake_s = min(now - self._checked_at, self._longest_gap_s)
        self._checked_at = now
        if self._pulse.ticks != self._ticks:
            self._ticks, self._silent_s = self._pulse.ticks, 0.0
        else:
            self._silent_s += awake_s
        for what, for_s in (
            ("event loop did not tick", self._silent_s),
            ("oldest due key did not move", self._pulse.stuck_ticks * TICK_S),
            ("watch streams were silent", self._pulse.stale_ticks * TICK_S),
        ):
            if for_s > self._deadline_s:
                return what, for_s
        return None
