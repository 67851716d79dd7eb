"""Objects of a ring by shard, as the replicas count them in their Leases, and those of them that have to move. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeio.protocol import read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kubeio.models import Lease
    from kubeio.protocol import RingKeys


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Main objects of each shard, *misplaced* of which have to move, and those *unassigned* at the same moment."""

    by_shard: Mapping[str, int]
    misplaced: int = 0
    unassigned: int = 0


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
