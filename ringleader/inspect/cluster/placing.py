"""Placing many objects: a ring built once, and for each object a row that says where it is and belongs.

Owns the rows of `where --all` and `where -f`. A key that only an object's controller can tell is read from there,
once for each controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kubeio.errors import KubeError
from ringleader.inspect.cluster.rings import Life, Ring, Rings
from sharder.planning.controllers import ControllerKeys, read_controller
from sharder.planning.keys import Controlled, Outsider, Role, Root

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from sharder.planning.keys import ControllerName, RingKinds
    from sharder.planning.planner import ControllerSeen


class Row(msgspec.Struct, rename="camel", gc=False):
    """Where one object is and belongs."""

    resource: str
    namespace: str
    name: str
    ring: str
    owner: str
    owner_member: str
    owner_state: str
    drain_to: str | None
    desired_member: str
    desired_shard: str
    is_placed: bool
    key: str
    hash: str
    token: str


class Placer:
    """Places objects of *ring* as its Leases show it now."""

    def __init__(self, client: Client, ring: Ring, kinds: RingKinds, lives: Sequence[Life]) -> None:
        self._ring = ring
        self._kinds = kinds
        self._lives = {life.shard: life for life in lives}
        self._filling = {life.member: life.shard for life in lives if life.fills_place}
        self._rings = Rings(ring, lives)
        self._ancestry = ControllerKeys(kinds, self._reader(client))

    def _reader(self, client: Client) -> Callable[[ControllerName], Awaitable[ControllerSeen]]:
        async def read(controller: ControllerName) -> ControllerSeen:
            return await read_controller(client, controller, kinds=self._kinds, keys=self._ring.keys)

        return read

    async def roles(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Role]:
        """What each of *metas* is to the ring. Raises KubeError."""
        roles = [self._kinds.role(resource, meta) for meta in metas]
        for meta, role in zip(metas, roles, strict=True):
            self._ancestry.remember(resource, meta, role)
        found: list[Role] = []
        for resolved in await self._ancestry.resolved(roles):
            if isinstance(resolved, KubeError):
                raise resolved
            found.append(resolved)
        return found

    def desired(self, resource: ApiResource, metas: Sequence[Meta]) -> list[str]:
        """The shard that each of *metas* belongs to; empty for nobody, and where only a controller tells the key."""
        roles = [self._kinds.role(resource, meta) for meta in metas]
        return [self._shard_for(known_key(role), main_of(role)) for role in roles]

    def _shard_for(self, key: str | None, main: str) -> str:
        hashed = self._rings.of(main)
        return self._filling.get(hashed.owner(key), "") if key and len(hashed) else ""

    async def rows(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Row]:
        """A row for each of *metas* that belongs to the ring. Raises KubeError."""
        name, roles = resource.group_resource, await self.roles(resource, metas)
        return [
            self.row(name, meta, key, main_of(role))
            for meta, role in zip(metas, roles, strict=True)
            if (key := key_of(role)) is not None
        ]

    def row(self, resource: str, meta: Meta, key: str, main: str) -> Row:
        """Where the object with *meta* is, and where *key* of a tree below a *main* belongs."""
        keys, labels = self._ring.keys, meta.labels
        shard, drain = labels.get(keys.shard, ""), labels.get(keys.drain)
        owner = self._lives.get(shard)
        hashed = self._rings.of(main)
        found = hashed.explain(key) if len(hashed) else None
        member = found.owner if found else ""
        desired = self._filling.get(member, "")
        return Row(
            resource,
            meta.namespace,
            meta.name,
            self._ring.name,
            shard,
            owner.member if owner else "",
            owner.state if owner else ("no Lease" if shard else "unowned"),
            drain,
            member,
            desired,
            bool(shard) and shard == desired and drain is None and not (owner and owner.ignores(resource)),
            key,
            f"{found.hash:016x}" if found else "",
            f"{found.token:016x}" if found else "",
        )


def known_key(role: Role) -> str | None:
    """The key of an object of *role*, if no controller need be asked for it."""
    return None if isinstance(role, Outsider) else role.key


def main_of(role: Role) -> str:
    """The main resource that an object of *role* is, or follows; empty if only a controller tells, or it is none."""
    return "" if isinstance(role, Outsider) else role.main


def key_of(role: Role) -> str | None:
    """What is hashed for an object of *role*; None if the ring has nothing to do with it."""
    match role:
        case Outsider():
            return None
        case Root(key=key):
            return key
        case Controlled(key=key, controller=controller):
            return key or controller.key
