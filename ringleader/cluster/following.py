"""Rings looked at again and again: their objects are watched, the little that is left is read anew each time.

Owns the watches, one set for each ring. Reads only.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import msgspec

from ringleader.cluster.causes import ring_notes
from ringleader.cluster.inventory import Hear
from ringleader.cluster.objects import ring_kinds
from ringleader.cluster.picture import RingPicture, picture
from ringleader.cluster.snapshot import ClusterReader, RingState, Snapshot
from ringleader.cluster.watched import WatchedRing

if TYPE_CHECKING:
    from collections.abc import Collection

    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring


class Watches:
    """The watched rings, by name. What a ring says of its objects may change: then they are watched anew."""

    def __init__(self, client: Client, discovery: Discovery) -> None:
        self._client = client
        self._discovery = discovery
        self._rings: dict[str, tuple[object, WatchedRing]] = {}

    async def of(self, ring: Ring, *, heard: Hear | None = None) -> WatchedRing:
        """The objects of *ring*, as far as they were read; *heard* is called with each change.

        Raises: InputError if the cluster does not serve one of its resources, KubeError.
        """
        essence = ring.metadata.uid, ring.spec.resources, ring.keys.shard, ring.spec.key, ring.spec.key_label
        known_as, watched = self._rings.get(ring.name, (None, None))
        if watched is None or known_as != essence or watched.may_try_again:
            kinds = await ring_kinds(self._discovery, ring)
            refused = watched.refused if watched is not None else None
            await self._end(ring.name)
            watched = WatchedRing(self._client, kinds, ring, heard=heard, after=refused)
            self._rings[ring.name] = essence, watched
            watched.start()
        return watched

    async def keep(self, names: Collection[str]) -> None:
        """End the watches of every other ring."""
        for name in self._rings.keys() - set(names):
            await self._end(name)

    async def close(self) -> None:
        """End them all."""
        await self.keep(())

    async def _end(self, name: str) -> None:
        _, watched = self._rings.pop(name, (None, None))
        if watched is not None:
            await watched.close()

    @property
    def objects(self) -> int:
        """Number of objects read so far, over all rings."""
        return sum(len(watched.objects) for _, watched in self._rings.values())


class Following:
    """The rings of a cluster, or the one called *name*; `async with` ends the watches."""

    def __init__(self, client: Client, discovery: Discovery, name: str | None, *, timeout_s: float) -> None:
        self._reader = ClusterReader(client, timeout_s=timeout_s)
        self._name = name
        self._looked_at: WeakSet[WatchedRing] = WeakSet()
        self.listed: dict[str, tuple[RingPicture, float]] = {}
        """Rings on which something was on its way: what their first list showed, and of when it was."""
        self.as_of: dict[str, float] = {}
        """Of when the last picture of such a ring is, on the monotonic clock; missing if it lags too far behind."""
        self.watches = Watches(client, discovery)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.watches.close()

    @property
    def objects_read(self) -> int:
        """Objects that were listed so far."""
        return self.watches.objects

    async def look(self, *, up_to_date: bool = False) -> list[RingPicture]:
        """The rings as they are now; the first time, once every object was seen.

        On a busy server the watches lag behind: the first look waits for what they have to tell, and so does each
        one that is to be *up_to_date*. Raises: InputError, KubeError.
        """
        snapshot = await self._snapshot()
        await self.watches.keep([each.name for each in snapshot.rings])
        found = [await self._look_at(snapshot, each, up_to_date=up_to_date) for each in snapshot.rings]
        return [
            msgspec.structs.replace(shown, warning=ring_notes(snapshot, each))
            for shown, each in zip(found, snapshot.rings, strict=True)
        ]

    async def _snapshot(self) -> Snapshot:
        return (await self._reader.snapshot(self._name)).require("rings", "leases")

    async def _again(self, name: str, before: Snapshot) -> Snapshot:
        """A newer snapshot; the one *before* if the ring *name* is gone meanwhile."""
        newer = await self._snapshot()
        return newer if any(each.name == name for each in newer.rings) else before

    async def _look_at(self, snapshot: Snapshot, state: RingState, *, up_to_date: bool) -> RingPicture:
        watched = await self.watches.of(state.ring)
        if not watched.is_synced:
            await watched.synced()  # that takes a while: the Leases are read again
            snapshot = await self._again(state.name, snapshot)
        shown = self._picture(snapshot, state.name, watched)
        is_first = watched not in self._looked_at
        if shown.to_do and (is_first or up_to_date):
            if is_first:
                self.listed[state.name] = shown, watched.listed_at
            self.as_of.pop(state.name, None)
            if (as_of := await watched.caught_up()) is not None:
                self.as_of[state.name] = as_of
            shown = self._picture(await self._again(state.name, snapshot), state.name, watched)
        self._looked_at.add(watched)
        watched.check()
        return shown

    def _picture(self, snapshot: Snapshot, name: str, watched: WatchedRing) -> RingPicture:
        state = snapshot.of(name)
        watched.objects.take(state.ring, state.shards)
        count = watched.objects.count(lambda namespace: snapshot.selects(state.ring, namespace))
        return picture(state.ring, state.shards, count)
