"""Watched objects of one ring: owner, drain target and desired member of each, in counts. Pure."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kubeio.models import ObjectKey
from kubeio.watches.watch_events import Changed, ListDone, Listed, ListStarted, Removed, WatchEvent
from ring import HashRing, hash_key
from ringleader.cluster.objects import known_key, main_of
from ringleader.cluster.picture import ObjectCount
from ringleader.cluster.ring import Ring
from ringleader.cluster.shards import HashRings, Shard, ring_weights

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from sharder.planning.keys import RingKinds


class Seen(msgspec.Struct, frozen=True, gc=False):
    """One object. *hash*: None where only its controller shows it."""

    owner: str
    drain: str | None
    hash: int | None
    member: str
    main: str = ""


class _Group(NamedTuple):
    """Properties shared by objects that are counted together."""

    namespace: str
    owner: str
    is_leaving: bool
    member: str
    main: str


Hear = Callable[[str, ObjectKey, Seen | None, Seen | None], None]
"""Called with a resource, an object, what was known of it and what is; None: nothing was, or it is gone."""


class Inventory:
    """The objects of one ring. Costs some 300 bytes for each; a change of the ring, a few microseconds for each.

    *heard* is called with each change.
    """

    def __init__(self, kinds: RingKinds, keys: RingKeys, *, heard: Hear | None = None) -> None:
        self._kinds = kinds
        self._keys = keys
        self._heard = heard
        self._objects: dict[str, dict[ObjectKey, Seen]] = {}
        self._groups: Counter[_Group] = Counter()
        self._members: dict[str, str] = {}
        self._active: Mapping[str, str] = {}
        self._recipe: object = None
        self._rings: HashRings | None = None

    @property
    def by_main(self) -> Mapping[str, HashRing]:
        """The ring of each main resource as the Leases show it; empty before `take`."""
        return self._rings.by_main if self._rings is not None else {}

    def take(self, ring: Ring, found: Sequence[Shard]) -> None:
        """The ring and its shards as they are now: where objects belong may change."""
        self._members |= {shard.name: shard.member for shard in found}
        self._active = {shard.member: shard.name for shard in found if shard.is_active}
        weights = [dict(ring_weights(ring, found, main)) for main in ("", *ring.mains)]
        recipe = weights, ring.mains, ring.spec.virtual_nodes, ring.spec.eps
        if recipe != self._recipe:
            self._recipe = recipe
            self._rings = HashRings(ring, found)
            self._place_all()

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def count(self, selects: Callable[[str], bool]) -> ObjectCount:
        """The objects of namespaces that the ring *selects*, and those that have an owner."""
        count = ObjectCount()
        for group, number in self._groups.items():
            if selects(group.namespace) or group.owner:
                desired = self._active.get(group.member, "")
                count.add(
                    group.owner, is_leaving=group.is_leaving, desired=desired, main=group.main, number=number
                )
        return count

    def member_of(self, shard: str) -> str:
        """The member of *shard*; the shard itself if no Lease says."""
        return self._members.get(shard, shard)

    # ---- events of the watches

    def note(self, resource: ApiResource, event: WatchEvent, listed: set[ObjectKey]) -> None:
        """Take an *event* of a watch of *resource*; *listed* has the objects of its present list so far, kept here."""
        known = self._objects.setdefault(resource.group_resource, {})
        match event:
            case ListStarted():
                listed.clear()
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
        self, resource: ApiResource, known: dict[ObjectKey, Seen], key: ObjectKey, meta: Meta | None
    ) -> None:
        before = known.get(key)
        after = self._seen(resource, meta) if meta is not None else None
        if after == before:
            return
        if before is not None:
            self._leave(_group(key, before))
        if after is None:
            del known[key]
        else:
            known[key] = after
            self._groups[_group(key, after)] += 1
        if self._heard is not None:
            self._heard(resource.group_resource, key, before, after)

    def _seen(self, resource: ApiResource, meta: Meta) -> Seen:
        labels = meta.labels
        owner, drain = sys.intern(labels.get(self._keys.shard, "")), labels.get(self._keys.drain)
        role = self._kinds.role(resource, meta)
        text, main = known_key(role), main_of(role)
        position = hash_key(text) if text else None
        return Seen(
            owner,
            None if drain is None else sys.intern(drain),
            position,
            self._member_at(position, main),
            main,
        )

    def _member_at(self, position: int | None, main: str) -> str:
        if position is None or self._rings is None:
            return ""
        hashed = self._rings.of(main)
        return hashed.owner_of_hash(position) if len(hashed) else ""

    def _leave(self, group: _Group) -> None:
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]

    def _place_all(self) -> None:
        self._groups.clear()
        for known in self._objects.values():
            for key, seen in known.items():
                member = self._member_at(seen.hash, seen.main)
                if member != seen.member:
                    known[key] = msgspec.structs.replace(seen, member=member)
            self._groups.update(_group(key, seen) for key, seen in known.items())


def _group(key: ObjectKey, seen: Seen) -> _Group:
    return _Group(sys.intern(key.namespace), seen.owner, seen.drain is not None, seen.member, seen.main)
