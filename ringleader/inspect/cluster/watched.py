"""The objects of one ring, kept current by a watch of metadata for each resource that it distributes.

Owns what is remembered of an object: its owner, who is to have it next, at whose place it belongs. For whoever looks
again and again: a list of 100,000 objects costs an API server seconds, a watch costs it what changes. Begun and ended
by `following`; also read by `ringleader page`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubeio.clock import SystemClock
from kubeio.errors import KubeError
from kubeio.models import ObjectKey
from kubeio.watches.versions import is_older
from kubeio.watches.watch import Changed, ListDone, Listed, ListStarted, ListWatch, Removed, WatchEvent
from ring import HashRing, hash_key
from ringleader.inspect.cluster.picture import Count
from ringleader.inspect.cluster.placing import known_key
from ringleader.inspect.cluster.reading import PAGE
from ringleader.inspect.cluster.rings import Life, Ring, ring_weights

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.resource import Resource
    from kubeio.rest.client import Client
    from ringleader.inspect.cluster.terms import Selection
    from sharder.planning.keys import RingKinds

_LOOKS_S: Final = 0.05
_QUIET_S: Final = 3.0
_PATIENCE_S: Final = 20.0
_REFUSED_S: Final = 5.0
_ROUTINE: Final = 2
"""Failures in a row that are worth telling: a watch that ends too early, or has to list again, does so once."""
_TRIES: Final = 3
"""A first list that failed so often is told; the watch goes on trying."""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """One object. *former*: who owned it last, if nobody does; *hash*: None where only its controller can tell."""

    owner: str
    drain: str | None
    former: str
    hash: int | None
    member: str


class _Group(NamedTuple):
    """What objects that are counted together have in common."""

    namespace: str
    owner: str
    is_leaving: bool
    member: str


Hear = Callable[[str, ObjectKey, Seen | None, Seen | None], None]
"""Called with a resource, an object, what was known of it and what is; None: nothing was, or it is gone."""


class WatchedRing:
    """One ring's objects. Costs some 300 bytes for each; a change of the ring, a few microseconds for each.

    *heard* is told what changes. *after*: why watching them was refused before, told until the server thinks better.
    """

    def __init__(
        self,
        client: Client,
        kinds: RingKinds,
        ring: Ring,
        *,
        heard: Hear | None = None,
        after: KubeError | None = None,
    ) -> None:
        self._client = client
        self._after = after
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._kinds = kinds
        self._keys = ring.keys
        self._heard = heard
        self._objects: dict[str, dict[ObjectKey, Seen]] = {}
        self._groups: Counter[_Group] = Counter()
        self._moves: Counter[tuple[str, str]] = Counter()
        self._members: dict[str, str] = {}
        self._filling: Mapping[str, str] = {}
        self._recipe: object = None
        self.hashed: HashRing | None = None
        """The ring as the Leases show it; None before `take`."""
        distributed = {each.kind.name for each in ring.spec.resources}
        self._sessions = [
            ListWatch(
                client,
                resource,
                metadata_only=True,
                page_size=PAGE,
                streams_lists=False,
                clock=self._clock,
                rng=random.Random(),  # noqa: S311
            )
            for resource in kinds.resources
            if resource.group_resource in distributed
        ]
        self._unlisted = len(self._sessions)
        self._tasks: list[asyncio.Task[None]] = []
        self.listed_at = self._clock.now()
        """Of which time, on the monotonic clock, the first lists are."""

    # ---- its life

    def start(self) -> None:
        """Begin to watch."""
        self._tasks = [
            asyncio.create_task(self._follow(session), name=f"watch {session.resource.group_resource}")
            for session in self._sessions
        ]

    async def close(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_synced(self) -> bool:
        """Whether every object was seen once."""
        return not self._unlisted

    @property
    def refused(self) -> KubeError | None:
        """Why it ended: the server refused what it asked for first."""
        for task in self._tasks:
            if task.done() and isinstance(error := task.exception(), KubeError):
                return error
        return None

    @property
    def may_try_again(self) -> bool:
        """Whether it was refused, long enough ago to ask again."""
        return self.refused is not None and self._clock.now() - self._began >= _REFUSED_S

    def check(self) -> None:
        """Raises KubeError if what is known may be out of date."""
        if self.refused is not None:
            raise self.refused
        for session in self._sessions:
            if session.last_error is not None and session.failures >= _ROUTINE:
                raise session.last_error
        if self._after is not None and not self.is_synced:
            raise self._after

    async def synced(self) -> None:
        """Return once every object was seen. Raises KubeError."""
        while not self.is_synced:
            if self.refused is not None or any(session.failures >= _TRIES for session in self._sessions):
                self.check()
            await asyncio.sleep(_LOOKS_S)

    async def caught_up(self) -> float | None:
        """Wait for what the watches have to tell up to now, and count moves from there; returns when that "now" was.

        On a busy server a list takes a minute, and what happened meanwhile comes after it. None if it does not come
        soon, or not at all: the server's history may be shorter than that minute, and then another list is read.
        Raises KubeError.
        """
        asked_at = self._clock.now()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reached = [await self._caught_up(session) for session in self._sessions]
        except TimeoutError:
            return None
        finally:
            self._moves.clear()
        return asked_at if all(reached) else None

    async def _caught_up(self, session: ListWatch) -> bool:
        page = await self._client.list_page(session.resource, limit=1, metadata_only=True)
        while session.watching_since is None or is_older(session.resource_version, page.resource_version):
            if session.last_error is not None:
                return False
            since = session.watching_since
            if since is not None and self._clock.now() - max(since, session.sign_of_life_at) >= _QUIET_S:
                return True  # nothing happens to these objects: their newest version is an old one
            await asyncio.sleep(_LOOKS_S)
        return True

    # ---- what is asked of it

    def take(self, ring: Ring, found: Sequence[Life]) -> None:
        """The ring and its lives as they are now: where objects belong may change."""
        self._members |= {life.shard: life.member for life in found}
        self._filling = {life.member: life.shard for life in found if life.fills_place}
        weights = ring_weights(ring, found)
        recipe = dict(weights), ring.spec.virtual_nodes, ring.spec.eps
        if recipe != self._recipe:
            self._recipe = recipe
            self.hashed = HashRing(weights, virtual_nodes=ring.spec.virtual_nodes, eps=ring.spec.eps)
            self._place_all()

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def count(self, selection: Selection) -> Count:
        """The objects that are the ring's business, by owner."""
        count = Count()
        for group, number in self._groups.items():
            if selection.selects(group.namespace) or group.owner:
                desired = self._filling.get(group.member, "")
                count.add(group.owner, is_leaving=group.is_leaving, desired=desired, number=number)
        return count

    @property
    def moved(self) -> int:
        """How often an object came from one member to another since the beginning, however it came."""
        return sum(
            number
            for (source, target), number in self._moves.items()
            if self.member_of(source) != self.member_of(target)
        )

    def member_of(self, shard: str) -> str:
        """The member whose life *shard* is or was; the shard itself if no Lease told."""
        return self._members.get(shard, shard)

    # ---- what the watches tell

    async def _follow(self, session: ListWatch) -> None:
        resource = session.resource
        listed: set[ObjectKey] = set()
        is_listed = False
        async with aclosing(session.events()) as events:
            async for event in events:
                self._take(resource, event, listed)
                if isinstance(event, ListDone) and not is_listed:
                    is_listed = True
                    self._unlisted -= 1

    def _take(self, resource: Resource, event: WatchEvent, listed: set[ObjectKey]) -> None:
        known = self._objects.setdefault(resource.group_resource, {})
        match event:
            case ListStarted():
                listed.clear()
                if not self.is_synced:
                    self.listed_at = self._clock.now()
            case Listed(objects=objects):
                for item in objects:
                    key = item.meta.key
                    listed.add(key)
                    self._note(resource, known, key, item.meta)
            case ListDone():
                for key in known.keys() - listed:
                    self._note(resource, known, key, None)
                listed.clear()
            case Changed(object=item):
                self._note(resource, known, item.meta.key, item.meta)
            case Removed(object=item):
                self._note(resource, known, item.meta.key, None)
            case _:
                pass

    def _note(
        self, resource: Resource, known: dict[ObjectKey, Seen], key: ObjectKey, meta: Meta | None
    ) -> None:
        before = known.get(key)
        after = self._seen(resource, meta, before) if meta is not None else None
        if after == before:
            return
        if before is not None:
            self._leave(_group(key, before))
        if after is None:
            del known[key]
        else:
            known[key] = after
            self._groups[_group(key, after)] += 1
            self._note_move(before, after)
        if self._heard is not None:
            self._heard(resource.group_resource, key, before, after)

    def _note_move(self, before: Seen | None, after: Seen) -> None:
        source = (before.owner or before.former) if before is not None else ""
        if source and after.owner and source != after.owner:
            self._moves[source, after.owner] += 1

    def _seen(self, resource: Resource, meta: Meta, before: Seen | None) -> Seen:
        labels = meta.labels
        owner, drain = sys.intern(labels.get(self._keys.shard, "")), labels.get(self._keys.drain)
        text = known_key(self._kinds.role(resource, meta))
        position = hash_key(text) if text else None
        former = "" if owner or before is None else before.owner or before.former
        return Seen(
            owner, None if drain is None else sys.intern(drain), former, position, self._member_at(position)
        )

    def _member_at(self, position: int | None) -> str:
        if position is None or self.hashed is None or not len(self.hashed):
            return ""
        return self.hashed.owner_of_hash(position)

    def _leave(self, group: _Group) -> None:
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]

    def _place_all(self) -> None:
        self._groups.clear()
        for known in self._objects.values():
            for key, seen in known.items():
                member = self._member_at(seen.hash)
                if member != seen.member:
                    known[key] = msgspec.structs.replace(seen, member=member)
            self._groups.update(_group(key, seen) for key, seen in known.items())


def _group(key: ObjectKey, seen: Seen) -> _Group:
    return _Group(sys.intern(key.namespace), seen.owner, seen.drain is not None, seen.member)
