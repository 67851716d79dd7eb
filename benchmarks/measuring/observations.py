"""Independent watches over a ring's objects and Leases, with the time of each event.

Each object's owner, drain label and newest version are kept, and every change
of owner is logged. Times are this process's clock at the arrival of the event: a late watch makes whatever is
measured slower, never faster.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from kubeio.clock import Clock
from kubeio.leases.lease import decode_lease
from kubeio.models import Meta
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.client import Client
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, ListDone, Listed, ListStarted, Reflector, Removed

_POLL_S: Final = 0.02


class NotSeen(Exception):
    """An expected change did not happen in time."""


class OwnerChange(NamedTuple):
    """The shard label of *name* became *after* (empty: none)."""

    at: float
    name: str
    before: str
    after: str


class ObjectChange(NamedTuple):
    """Something of *name* became different."""

    at: float
    name: str


class HolderChange(NamedTuple):
    """The Lease *name* is held by *after* now (empty: no holder)."""

    at: float
    name: str
    before: str
    after: str


class Renewal(NamedTuple):
    """One renewal: sent at, by the replica's wall clock; seen at, by ours. Seconds."""

    sent_at: float
    seen_at: float


@dataclass(slots=True)
class Observed:
    """The newest version of one object that was seen."""

    uid: str
    version: str
    owner: str
    drain: str | None


class Observations:
    """The objects of *resource*, while `run` runs."""

    def __init__(self, client: Client, resource: ApiResource, *, keys: RingKeys, clock: Clock) -> None:
        self._watch = Reflector(
            ListerWatcher(client, resource, metadata_only=True),
            clock=clock,
            rng=random.Random(0),  # noqa: S311 - jitter
        )
        self.keys = keys
        self._clock = clock
        self._listing: set[str] = set()
        self.objects: dict[str, Observed] = {}
        self.log: list[OwnerChange] = []
        self.changes: list[ObjectChange] = []
        """Every change of an object that was there before, whatever changed."""
        self.drains: list[float] = []
        """First sight of each drain label."""
        self.owned: Counter[str] = Counter()
        """Objects by owner; an empty name for those without one."""
        self.draining = 0
        self.most_draining = 0
        self.listed = asyncio.Event()

    async def run(self) -> None:
        async for event in self._watch.events():
            match event:
                case ListStarted():
                    self._listing = set()
                case Listed(objects=objects):
                    for item in objects:
                        self._listing.add(item.meta.name)
                        self._see(item.meta)
                case ListDone():
                    for name in self.objects.keys() - self._listing:
                        self._forget(name)
                    self.listed.set()
                case Changed(object=item, is_new=is_new):
                    if not is_new:
                        self.changes.append(ObjectChange(self._clock.now(), item.meta.name))
                    self._see(item.meta)
                case Removed(object=item):
                    self._forget(item.meta.name)
                case _:
                    pass

    def start_over(self) -> None:
        """Empty the logs: a row begins."""
        self.log = []
        self.changes = []
        self.drains = []
        self.most_draining = self.draining

    def has_owners(self, wanted: Counter[str]) -> bool:
        """Whether exactly so many objects belong to each, and none is being drained."""
        return self.draining == 0 and +self.owned == +wanted

    def gained(self, shards: Iterable[str]) -> list[OwnerChange]:
        """Changes that gave an object to one of *shards*."""
        chosen = frozenset(shards)
        return [change for change in self.log if change.after in chosen]

    def owner_of(self, name: str) -> str:
        """The shard of *name*; empty if it has none, or is not there."""
        known = self.objects.get(name)
        return known.owner if known is not None else ""

    def meta(self, name: str, namespace: str) -> Meta:
        """Metadata of the newest version of *name*, as far as a patch needs it."""
        seen = self.objects[name]
        return Meta(
            name=name,
            namespace=namespace,
            uid=seen.uid,
            resource_version=seen.version,
            labels={self.keys.shard: seen.owner} if seen.owner else {},
        )

    def _see(self, meta: Meta) -> None:
        owner, drain = meta.labels.get(self.keys.shard, ""), meta.labels.get(self.keys.drain)
        known = self.objects.get(meta.name)
        if known is None:
            known = self.objects[meta.name] = Observed(meta.uid, "", "", None)
            self.owned[""] += 1
        known.uid, known.version = meta.uid, meta.resource_version
        if owner != known.owner:
            self.log.append(OwnerChange(self._clock.now(), meta.name, known.owner, owner))
            self.owned[known.owner] -= 1
            self.owned[owner] += 1
            known.owner = owner
        if drain != known.drain:
            self._note_drain(known, drain)

    def _note_drain(self, known: Observed, drain: str | None) -> None:
        if known.drain is None:
            self.drains.append(self._clock.now())
            self.draining += 1
            self.most_draining = max(self.most_draining, self.draining)
        elif drain is None:
            self.draining -= 1
        known.drain = drain

    def _forget(self, name: str) -> None:
        known = self.objects.pop(name, None)
        if known is not None:
            self.owned[known.owner] -= 1
            self.draining -= known.drain is not None


class LeaseObservations:
    """Holders and renewals of the Leases of one namespace, while `run` runs."""

    def __init__(self, client: Client, namespace: str, *, clock: Clock) -> None:
        self._watch = Reflector(
            ListerWatcher(client, LEASES, namespace=namespace),
            clock=clock,
            rng=random.Random(0),  # noqa: S311 - jitter
        )
        self._clock = clock
        self._renewed: dict[str, str] = {}
        self.holders: dict[str, str] = {}
        self.log: list[HolderChange] = []
        self.renewals: list[Renewal] = []
        """Of all Leases of the namespace."""

    async def run(self) -> None:
        async for event in self._watch.events():
            match event:
                case Listed(objects=objects):
                    for item in objects:
                        self._see(item.meta.name, item.raw)
                case Changed(object=item):
                    self._see(item.meta.name, item.raw)
                case Removed(object=item):
                    self.holders.pop(item.meta.name, None)
                case _:
                    pass

    def start_over(self) -> None:
        """Empty the logs: a row begins."""
        self.log = []
        self.renewals = []

    def taken_at(self, shard: str) -> float | None:
        """The instant at which *shard*'s Lease was first seen with another holder."""
        return next((c.at for c in self.log if c.name == shard and c.before == shard), None)

    def _see(self, name: str, raw: bytes) -> None:
        spec = decode_lease(raw).spec
        holder, renewed = spec.holder_identity or "", spec.renew_time or ""
        if renewed and self._renewed.get(name) != renewed:
            self._renewed[name] = renewed
            self.renewals.append(Renewal(datetime.fromisoformat(renewed).timestamp(), self._clock.now()))
        before = self.holders.get(name, "")
        if name not in self.holders or before != holder:
            self.holders[name] = holder
            self.log.append(HolderChange(self._clock.now(), name, before, holder))


async def wait_for(condition: Callable[[], object], what: str, *, within_s: float) -> None:
    """Wait for *condition*, which other processes bring about. Raises: NotSeen."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise NotSeen(f"waited {within_s:g} s in vain for {what}") from None
