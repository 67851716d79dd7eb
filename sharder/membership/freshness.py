"""Freshness of our own reads, and members that are silent for too long. Pure.

Owned by `sharder.membership.membership`. Silence is evidence only while our reads succeed: it is counted up to the last
fresh read, and starts anew after a gap. Many silent members at once are more likely one fault between us and them than
many deaths: then we wait longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sharder.membership.shards import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sharder.membership.shards import Shard

DURATIONS: Final = 2
"""Durations of silence after which a Lease is taken."""


class ReadFreshness:
    """Instant up to which our reads are fresh, and the instant since which they have had no gap."""

    def __init__(self) -> None:
        self.fresh_at = NEVER
        self.unbroken_since = NEVER

    def note_fresh(self, *, at: float, shortest_s: float) -> float:
        """Reads are complete as of *at*. Gives the gap before it; one longer than *shortest_s* counts as a break."""
        if at <= self.fresh_at:
            return 0.0
        gap_s = at - self.fresh_at
        if gap_s > shortest_s:
            self.unbroken_since = at
        self.fresh_at = at
        return gap_s


def failing_members(
    shards: Iterable[Shard], *, fresh_at: float, recent_takes: Mapping[str, float], now: float
) -> frozenset[str]:
    """Members to be patient with: those that fall silent in one window, if they are more than a third of all.

    Renewals are a third of a duration apart, so what fails together falls silent within that: the window. A member
    with another shard that renews is not lost. Those taken within the window count as well.
    """
    held = [shard for shard in shards if shard.may_be_member]
    window_s = max((shard.longest_duration_s for shard in held), default=0.0) / 3
    silent = {shard.member for shard in held if _falls_silent(shard, fresh_at)}
    well = {shard.member for shard in held if not _falls_silent(shard, fresh_at)}
    recent = {member for member, at in recent_takes.items() if at > now - window_s}
    lost = (silent | recent) - well
    return frozenset(silent - well) if 3 * len(lost) > len(silent | well | recent) else frozenset()


def _falls_silent(shard: Shard, fresh_at: float) -> bool:
    duration_s = shard.longest_duration_s
    return shard.silence_s(fresh_at) >= DURATIONS * duration_s - duration_s / 3
