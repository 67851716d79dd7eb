"""One ring as the live page shows it, from what is read of the cluster: its Leases, its handoffs, its objects.

Owns what was last read. Told to read by `ringleader.inspect.page.command`; what it shows is `sharder.page`'s to draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubeio.models import Meta, ObjectKey
from ring import HASH_SPACE, HashRing
from ringleader.inspect.cluster.picture import Count, ideal_shares
from ringleader.inspect.cluster.reading import read_lives
from ringleader.inspect.cluster.rings import Life, Ring, ring_weights
from ringleader.inspect.where.one import find
from sharder.page.facts import ROWS, Found, Handover, MemberFacts, RingFacts, Sectors
from sharder.page.history import Move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from sharder.page.history import History

MOST_HANDOFFS: Final = 500
"""Handoffs that are read; the ring's status tells how many there are."""


class PolledRing:
    """One ring of the cluster. `look` costs two lists of what is small, `count` all objects by pages of metadata."""

    def __init__(
        self, client: Client, discovery: Discovery, ring: Ring, history: History, *, timeout_s: float
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._ring = ring
        self._history = history
        self._timeout_s = timeout_s
        self._lives: list[Life] = []
        self._count: Count | None = None
        self._counted_at: float | None = None
        self._read_at: float | None = None
        self._handovers: dict[str, Handover] = {}
        self._weights: Mapping[str, float] = {}
        self._hash_ring: HashRing | None = None
        self._sectors = Sectors()
        self.problem = ""
        """Why nothing newer can be shown."""

    def take(self, ring: Ring) -> PolledRing:
        """A newer version of the ring was read."""
        self._ring = ring
        return self

    async def look(self, *, at: float) -> None:
        """Read Leases and handoffs. Raises KubeError."""
        lives = await read_lives(self._client, self._ring)
        handoffs = await self._read_handoffs()
        self._lives, self._read_at = lives, at
        weights = ring_weights(self._ring, lives)
        if weights != self._weights:
            self._weights = weights
            spec = self._ring.spec
            self._hash_ring = HashRing(weights, virtual_nodes=spec.virtual_nodes, eps=spec.eps)
        self._compare(handoffs, at=at)
        self._history.saw(self._members(), at=at)

    async def count(self, *, at: float) -> None:
        """Count the objects of every owner. Raises KubeError."""
        count = Count()
        for distributed in self._ring.spec.resources:
            resource = await self._discovery.resolve(distributed.kind.name)
            pages = self._client.pages(resource, metadata_only=True, timeout_s=self._timeout_s)
            async for page in pages:
                for obj in page.objects:
                    count.add(obj.meta.labels, self._ring.keys)
        self._count, self._counted_at = count, at

    def hash_ring(self) -> HashRing | None:
        return self._hash_ring

    def facts(self) -> RingFacts:
        order, sectors = self._sectors.of(self._hash_ring)
        status = self._ring.status
        return RingFacts(
            version=_number(status, "ringVersion") or 0,
            converged=self._ring.condition("Balanced") == "True",
            note=_note(self._ring),
            problem=self.problem,
            read_at=self._read_at,
            objects=self._count.owners.total() if self._count else None,
            counted_at=self._counted_at,
            unowned=_number(status, "unassigned"),
            in_flight=self._in_flight(),
            members=self._members(),
            handovers=list(self._handovers.values())[:ROWS],
            order=order,
            sectors=sectors,
            resources=_resources(self._ring),
        )

    async def find(self, resource: str, namespace: str, name: str) -> Found:
        """As `ringleader where`. Raises InputError, KubeError."""
        key = ObjectKey(namespace, name)
        placement = await find(
            self._client, resource, key, ring_name=self._ring.name, timeout_s=self._timeout_s
        )
        return Found(
            object=placement.object,
            owner=placement.owner,
            owner_member=placement.owner_member,
            owner_state=placement.owner_state,
            desired_member=placement.desired_member,
            desired_shard=placement.desired_shard,
            drain_to=placement.drain_to,
            key=placement.key,
            hash=placement.hash,
            position=int(placement.hash, 16) / HASH_SPACE if placement.hash else None,
            is_placed=placement.is_placed,
            story=placement.why,
        )

    async def _read_handoffs(self) -> dict[str, Meta]:
        found: dict[str, Meta] = {}
        for distributed in self._ring.spec.resources:
            resource = await self._discovery.resolve(distributed.kind.name)
            page = await self._client.list_page(
                resource,
                label_selector=self._ring.keys.drain,
                limit=MOST_HANDOFFS,
                metadata_only=True,
                timeout_s=self._timeout_s,
            )
            for obj in page.objects:
                found[f"{resource.group_resource} {obj.meta.key}"] = obj.meta
        return found

    def _compare(self, handoffs: Mapping[str, Meta], *, at: float) -> None:
        """What began and what ended since the last look."""
        keys, members = self._ring.keys, {life.shard: life.member for life in self._lives}
        for name in [name for name in self._handovers if name not in handoffs]:
            ended = self._handovers.pop(name)
            self._history.moved(Move("handedOver", name, ended.source, ended.target), at=at)
        for name, meta in handoffs.items():
            if name in self._handovers:
                continue
            owner, target = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain, "")
            begun = Handover(name, members.get(owner, owner), members.get(target, target), at)
            self._handovers[name] = begun
            self._history.moved(Move("asked", name, begun.source, begun.target), at=at)

    def _in_flight(self) -> int:
        """Exact, unless there are more than were read: then as the sharder told last."""
        seen = len(self._handovers)
        return seen if seen < MOST_HANDOFFS else max(seen, _number(self._ring.status, "inFlight") or 0)

    def _members(self) -> dict[str, MemberFacts]:
        shares = self._hash_ring.shares() if self._hash_ring is not None else {}
        ideal = ideal_shares(self._ring, self._lives)
        leaving: dict[str, int] = {}
        for each in self._handovers.values():
            leaving[each.source] = leaving.get(each.source, 0) + 1
        found: dict[str, MemberFacts] = {}
        for life in self._lives:
            has_place = life.fills_place and life.member in self._weights
            if life.member in found or not (has_place or life.is_live):
                continue
            found[life.member] = MemberFacts(
                place="filled" if has_place else "none",
                shard=life.shard,
                state=life.state,
                weight=float(self._weights.get(life.member, 0.0)),
                share=round(float(shares.get(life.member, 0)), 6) if has_place else 0.0,
                ideal=round(ideal.get(life.member, 0.0), 6) if has_place else 0.0,
                objects=self._count.owners[life.shard] if self._count else None,
                in_flight=leaving.get(life.member, 0),
            )
        return found


def _number(status: Mapping[str, Any], field: str) -> int | None:
    value = status.get(field)
    return value if isinstance(value, int) else None


def _note(ring: Ring) -> str:
    """Why the sharder does not work the ring as usual, in its own words."""
    for condition in ring.status.get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return str(condition.get("message") or condition.get("reason") or "the ring is not ready")
    return "" if ring.status else "no sharder has worked this ring yet"


def _resources(ring: Ring) -> list[str]:
    mains = [each.kind.name for each in ring.spec.resources]
    controlled = [kind.name for each in ring.spec.resources for kind in each.controlled_resources]
    return list(dict.fromkeys([*mains, *controlled]))
