"""Rings as the sharder and the replicas report them: from the ring's status and the Leases, without a list of objects.

A replica writes its number of objects into its Lease with each renewal; the sharder writes all objects, those without
an owner, those misplaced, and the pace into the ring's status, once a second while something is to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ringleader.cluster.causes import ring_notes
from ringleader.cluster.picture import ObjectCount, RingPicture, picture
from ringleader.cluster.snapshot import ClusterReader

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard

CONTESTED: Final = "contested"
"""State of a Lease that was taken while its process may still work, or that the sharder made for a forged name."""


class NotReported(Exception):
    """A live replica does not report its number of objects, or no sharder has counted a ring."""


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
            msgspec.structs.replace(reported(each.ring, each.shards), warning=ring_notes(snapshot, each))
            for each in snapshot.rings
        ]


def reported(ring: Ring, found: Sequence[Shard]) -> RingPicture:
    """*ring* as the sharder counts it, with the counts of its replicas *found*. Raises: NotReported."""
    status, count = ring.status, ObjectCount()
    for shard in found:
        if not shard.is_live or (shard.objects is None and shard.state == CONTESTED):
            continue  # its objects wait for an owner: the sharder counts them
        if shard.objects is None:
            raise NotReported(f"replica {shard.name} of ring {ring.name} does not report its objects")
        for main in ring.mains:
            count.add(shard.name, is_leaving=False, main=main, number=shard.objects.get(main, 0))
    if not isinstance(status.get("objects"), int):
        raise NotReported(f"no sharder has counted the objects of ring {ring.name} yet")
    rows = status.get("members") or []
    count.leaving.update({str(row.get("shard")): int(row.get("inFlight") or 0) for row in rows})
    owned = count.owners.total()
    count.add("", is_leaving=False, number=int(status.get("unassigned") or 0))
    shown, progress = picture(ring, found, count), status.get("progress") or {}
    ages = [shard.age_s for shard in found if shard.is_held and shard.age_s is not None]
    return msgspec.structs.replace(
        shown,
        objects=owned + shown.released if shown.releasing else status["objects"],
        misplaced=int(status.get("misplaced") or 0),
        rate_per_second=progress.get("objectsPerSecond"),
        seconds_left=progress.get("secondsLeft"),
        reported_seconds_ago=round(max(0.0, *ages), 1) if ages else 0.0,
    )
