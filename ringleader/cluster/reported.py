"""Rings as the sharder and the replicas report them: from the ring's status and the Leases, without a list of objects.

Owns what can be said so. A replica writes its number of objects into its Lease with each renewal; the sharder writes
what waits and what is being handed over into the ring's status within a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ringleader.cluster.causes import ring_notes
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.picture import ObjectCount, RingPicture, picture
from ringleader.cluster.snapshot import ClusterReader

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard

CONTESTED: Final = "contested"
"""State of a Lease that was taken while its process may still work, or that the sharder made for a forged name."""


class NotReported(Exception):
    """A live replica of *ring* does not report how many objects it has."""

    def __init__(self, ring: str, shard: str) -> None:
        self.ring = ring
        self.shard = shard
        super().__init__(f"replica {shard} of ring {ring} does not report its objects")


class Reports:
    """The rings of a cluster, or the one called *name*, by a few small reads each time."""

    def __init__(self, client: Client, name: str | None, *, timeout_s: float) -> None:
        self._reader = ClusterReader(client, timeout_s=timeout_s)
        self._name = name

    @property
    def objects_read(self) -> int:
        """Objects that were listed so far."""
        return 0

    async def look(self) -> list[RingPicture]:
        """The rings as they are reported now. Raises: NotReported, InputError for an unknown ring, KubeError."""
        snapshot = (await self._reader.snapshot(self._name, reads_namespaces=False)).require(
            "rings", "leases"
        )
        return [
            msgspec.structs.replace(
                reported(each.ring, each.shards, now=snapshot.now), warning=ring_notes(snapshot, each)
            )
            for each in snapshot.rings
        ]


def reported(ring: Ring, found: Sequence[Shard], *, now: datetime) -> RingPicture:
    """*ring* with the counts of its replicas *found*. Raises: NotReported."""
    rows = ring.status.get("members") or []
    count = ObjectCount()
    for shard in found:
        if not shard.is_live or (shard.objects is None and shard.state == CONTESTED):
            continue  # its objects wait for an owner: the sharder counts them
        if shard.objects is None:
            raise NotReported(ring.name, shard.name)
        for main in ring.mains:
            count.add(shard.name, is_leaving=False, main=main, number=shard.objects.get(main, 0))
    count.leaving.update({str(row.get("shard")): int(row.get("inFlight") or 0) for row in rows})
    owned = count.owners.total()
    count.add("", is_leaving=False, number=int(ring.status.get("unassigned") or 0))
    if ring.condition("Balanced").status != "True":
        count.away.update(surplus(count.owners, _shares(rows), count.leaving))
    shown = picture(ring, found, count)
    ages = [shard.age_s for shard in found if shard.is_held and shard.age_s is not None]
    return msgspec.structs.replace(
        shown,
        objects=owned + shown.released if shown.releasing else shown.objects,
        reported_seconds_ago=round(max(0.0, *ages), 1) if ages else 0.0,
        **_release_rate(ring, shown, now),
    )


def _release_rate(ring: Ring, shown: RingPicture, now: datetime) -> dict[str, float]:
    """The mean rate of a release since the ring was deleted, and what is left at that rate; nothing if unknown."""
    taken_s = seconds_since(ring.metadata.deletion_timestamp, now)
    if not shown.released or not taken_s or taken_s <= 0:
        return {}
    per_s = shown.released / taken_s
    return {"rate_per_second": per_s, "seconds_left": shown.to_do / per_s}


def surplus(
    owned: Mapping[str, int], shares: Mapping[str, float], leaving: Mapping[str, int]
) -> Counter[str]:
    """Number of objects of each shard above its share, or being handed over, if that is more: those have to move.

    *owned* counts objects by shard, those without an owner under an empty name.
    """
    total = sum(owned.values())
    return Counter(
        {
            shard: max(round(number - total * shares.get(shard, 0.0)), leaving.get(shard, 0), 0)
            for shard, number in owned.items()
            if shard
        }
    )


def _shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Part of the ring by shard; nothing for a member without a place."""
    shares = {str(row.get("shard")): float(row.get("share") or 0) for row in rows}
    total = sum(shares.values())
    return {shard: share / total for shard, share in shares.items()} if total else {}
