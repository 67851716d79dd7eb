"""What `explain` knows of one object: the object, its ring, its owner's Lease, the owner's own page, who leads, Events.

Owns the reading; what it means is `diagnosis`'s. Reads only, and what may not be read is left out, not an error: the
story then says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from kubeio.clock import SystemClock
from kubeio.errors import Forbidden, KubeError, NotFound
from kubeio.models import HasMeta, Lease, Meta, ObjectKey
from kubeio.observed import observed
from ringleader.inspect.cluster.dates import DatedMeta
from ringleader.inspect.cluster.happenings import ClusterEvent, read_happenings
from ringleader.inspect.cluster.keys import ring_kinds
from ringleader.inspect.cluster.owner_page import Asked, at_url, in_pod
from ringleader.inspect.cluster.rings import Life, Ring
from ringleader.inspect.cluster.sharders import Sharders, read_sharders
from ringleader.inspect.cluster.terms import RingDocument, is_selected, read_terms
from ringleader.inspect.where.one import Placement, Sighting, look_up, place

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.inspect.cluster.owner_page import Door
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import LeaseRef

_EVENTS = 5


@dataclass(frozen=True, slots=True)
class Above:
    """The controller of a controlled object, and the shard in its label."""

    name: str
    key: ObjectKey
    owner: str = ""
    exists: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the diagnosis reads; times are compared with *now*, by our wall clock."""

    placement: Placement
    meta: DatedMeta
    ring: Ring
    terms: RingDocument
    lives: Sequence[Life]
    sharders: Sharders
    now: datetime
    kind: str = ""
    """The object's resource, as `plural.group`."""
    main: str = ""
    """The main resource that the object is or follows."""
    owner_lease: Lease | None = None
    """The Lease of the owner's name, whichever ring it is of."""
    former_holder: str = ""
    """Who holds the former controller's Lease, if the ring waits for it."""
    is_selected: bool = True
    above: Above | None = None
    observed: int | None = None
    """The generation that its status says is observed; None if it does not say."""
    other_owners: Mapping[str, str] = field(default_factory=dict)
    """By further ring: the owner there."""
    asked: Asked | None = None
    """None: nobody was asked, for there is no live owner or no way to it."""
    happenings: list[ClusterEvent] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    @property
    def owner(self) -> Life | None:
        return self.life(self.placement.owner)

    def life(self, shard: str) -> Life | None:
        """The life called *shard*, if its ring has a Lease of it."""
        return next((life for life in self.lives if life.shard == shard), None)


@dataclass(frozen=True, slots=True)
class Way:
    """How the owner's page is reached: by *endpoint*, or in its pod through the API server."""

    endpoint: str | None = None
    pod_port: int | None = None


async def read_facts(
    client: Client, kind: str, key: ObjectKey, *, ring_name: str | None, way: Way, timeout_s: float
) -> Facts:
    """What there is to know of the object *key* of *kind*. Raises InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    discovery = Discovery(client)
    sighting = await look_up(client, discovery, kind, key, ring_name=ring_name, timeout_s=timeout_s)
    reader = _Reader(client, sighting, timeout_s=timeout_s)
    terms = await read_terms(client, sighting.ring.name, timeout_s=timeout_s)
    placement = place(sighting.ring, sighting.target, sighting.key, sighting.lives)
    now = SystemClock().wall()
    above = await reader.above(await ring_kinds(discovery, sighting.ring))
    owner = next((life for life in sighting.lives if life.shard == placement.owner), None)
    return Facts(
        placement=placement,
        meta=sighting.dated,
        ring=sighting.ring,
        terms=terms,
        lives=sighting.lives,
        sharders=await read_sharders(client, now=now, timeout_s=timeout_s),
        now=now,
        kind=sighting.target.resource.group_resource,
        main=sighting.key.main,
        owner_lease=await reader.lease(placement.owner),
        former_holder=await reader.former_holder(terms),
        is_selected=await reader.is_selected(terms),
        above=above,
        observed=await reader.observed(),
        other_owners={ring.name: sighting.dated.labels[ring.keys.shard] for ring in sighting.others},
        asked=await reader.ask(owner, above.key if above else sighting.target.meta.key, way),
        happenings=await reader.happenings(),
        unread=reader.unread,
    )


class _Reader:
    """The further reads about one object; each may be refused without spoiling the rest."""

    def __init__(self, client: Client, sighting: Sighting, *, timeout_s: float) -> None:
        self.unread: list[str] = []
        self._client = client
        self._sighting = sighting
        self._timeout_s = timeout_s

    @property
    def _meta(self) -> Meta:
        return self._sighting.target.meta

    async def lease(self, name: str) -> Lease | None:
        """The Lease called *name* where the ring's Leases are."""
        return await self._lease(self._sighting.ring.spec.lease_namespace, name) if name else None

    async def _lease(self, namespace: str, name: str) -> Lease | None:
        from kubeio.leases.lease import Leases

        try:
            return await Leases(self._client, namespace, timeout_s=self._timeout_s).get(name)
        except (NotFound, Forbidden):
            return None

    async def former_holder(self, terms: RingDocument) -> str:
        """Who holds the former controller's Lease instead of the ring; empty: nobody, or the ring does not wait."""
        from sharder.membership.activation import holder_of

        former: LeaseRef | None = terms.spec.activation if terms.spec is not None else None
        if former is None:
            return ""
        lease = await self._lease(former.namespace, former.name)
        holder = (lease.spec.holder_identity if lease else "") or ""
        return "" if holder == holder_of(self._sighting.ring.name) else holder

    async def is_selected(self, terms: RingDocument) -> bool:
        """Whether the ring wants objects of this namespace."""
        if terms.spec is None:
            return True
        namespace = self._meta.namespace
        try:
            return await is_selected(self._client, terms.spec, namespace, timeout_s=self._timeout_s)
        except (Forbidden, NotFound) as error:
            self.unread.append(f"namespace {namespace}: {error.message}")
            return True

    async def observed(self) -> int | None:
        """The generation in the object's status, for which it is read whole."""
        meta, resource = self._meta, self._sighting.target.resource
        try:
            raw = await self._client.get(
                resource, meta.name, namespace=meta.namespace, type=bytes, timeout_s=self._timeout_s
            )
        except NotFound:
            return None
        found = observed(raw)
        return found.generation if found is not None else None

    async def above(self, kinds: RingKinds) -> Above | None:
        """The object that controls this one, if one of the ring does."""
        from sharder.planning.keys import Controlled

        role = kinds.role(self._sighting.target.resource, self._meta)
        if not isinstance(role, Controlled):
            return None
        name = role.controller
        key = ObjectKey(name.namespace, name.name)
        shown = f"{name.resource.group_resource}/{key}"
        try:
            found = await self._client.get(
                name.resource,
                name.name,
                namespace=name.namespace,
                type=HasMeta,
                metadata_only=True,
                timeout_s=self._timeout_s,
            )
        except NotFound:
            return Above(shown, key, exists=False)
        owner = found.metadata.labels.get(self._sighting.ring.keys.shard, "")
        return Above(shown, key, owner, exists=found.metadata.uid == name.uid)

    async def ask(self, owner: Life | None, key: ObjectKey, way: Way) -> Asked | None:
        """What the owner says of its object *key*, if it lives and there is a way to it."""
        if owner is None or not owner.is_live:
            return None
        async with AsyncExitStack() as stack:
            if way.endpoint is not None:
                door: Door = await stack.enter_async_context(
                    at_url(way.endpoint, timeout_s=min(self._timeout_s, 10))
                )
            elif way.pod_port is not None:
                door = in_pod(self._client, owner.pod, port=way.pod_port, timeout_s=self._timeout_s)
            else:
                return None
            return await door.object_page(key)

    async def happenings(self) -> list[ClusterEvent]:
        """The last Events about the object; of its namesakes that are gone none."""
        meta = self._meta

        def wanted(seen: ClusterEvent) -> bool:
            return seen.name == meta.name and seen.uid in ("", meta.uid)

        try:
            return await read_happenings(
                self._client,
                wanted=wanted,
                namespace=meta.namespace,
                about=meta.name,
                most=_EVENTS,
                timeout_s=self._timeout_s,
            )
        except KubeError as error:
            self.unread.append(f"events: {error}")
            return []
