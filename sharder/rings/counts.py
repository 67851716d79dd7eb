"""Objects of a ring by shard as the replicas count them in their Leases, and the pace at which a ring settles. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kubeio.protocol import read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kubeio.models import Lease
    from kubeio.protocol import RingKeys

LOOKS: Final = 8
"""Looks that make up a pace: about as many seconds."""


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Main objects of each shard; *misplaced* of them have to move."""

    by_shard: Mapping[str, int]
    misplaced: int = 0


def count_objects(leases: Iterable[Lease], *, keys: RingKeys, mains: Iterable[str]) -> dict[str, int] | None:
    """Main objects by shard; None if a shard with full caches does not report: the sum would be too small."""
    wanted, found = tuple(mains), {}
    for lease in leases:
        marks, name = lease.metadata.annotations, lease.metadata.name
        counts = read_counts(marks[keys.objects]) if keys.objects in marks else None
        if counts is None and (marks.get(keys.synced) == "true" or keys.protocol not in marks):
            return None
        found[name] = sum((counts or {}).get(main, 0) for main in wanted)
    return found


def count_misplaced(
    owned: Mapping[str, int], shares: Mapping[str, float], in_flight: Mapping[str, int], *, unassigned: int
) -> int:
    """Objects that have to move: those above each shard's share of all, or its handoffs, if these are more.

    *shares* are parts of the ring by shard. An estimate: a share holds a few objects more or less than its part.
    """
    total, parts = sum(owned.values()) + unassigned, sum(shares.values())
    if not parts:
        return 0
    return sum(
        max(round(number - total * shares.get(shard, 0.0) / parts), in_flight.get(shard, 0), 0)
        for shard, number in owned.items()
    )


@dataclass(slots=True)
class Pace:
    """Objects that were still to do at the last looks."""

    _looks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=LOOKS))

    def look(self, at: float, to_do: int) -> None:
        """At *at* (seconds of a monotonic clock) *to_do* objects were not at their place."""
        if self._looks and to_do > self._looks[-1][1]:
            self._looks.clear()  # something changed: the looks before say nothing about what comes
        elif self._looks and self._looks[0][1] == self._looks[-1][1] > to_do:
            while len(self._looks) > 1:  # it begins to move: the settle window is no part of its pace
                self._looks.popleft()
        self._looks.append((at, to_do))

    @property
    def per_s(self) -> float | None:
        """Objects a second that came to their places; None before the second look."""
        if len(self._looks) < 2:
            return None
        (began, before), (ended, now) = self._looks[0], self._looks[-1]
        return (before - now) / (ended - began) if ended > began else None

    @property
    def left_s(self) -> float | None:
        """Seconds until nothing is to do at this pace; None if it is not known, or nothing moves."""
        rate = self.per_s
        return self._looks[-1][1] / rate if rate else None
