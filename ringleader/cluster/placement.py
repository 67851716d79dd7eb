"""Places of objects on a ring: role, key, owner and desired owner of each.

The key is `sharder.planning.keys`'. A key that only an object's controller shows is read from there, once for each
controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import KubeError
from sharder.planning.controllers import MAX_REMEMBERED, ControllerKeys, read_controller
from sharder.planning.keys import Controlled, Outsider, RingKinds, Role, Root
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from ringleader.cluster.snapshot import RingState
    from sharder.planning.keys import ControllerName
    from sharder.planning.planner import ControllerSeen

RELEASE: Final = "(release)"
"""In the place of a drain's target: the object is to be given up."""


class Row(msgspec.Struct, rename="camel", gc=False):
    """Owner and desired owner of one object."""

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
    main: str = ""
    """The main resource that it is or follows: the hash ring is that of its members."""


class Placer:
    """Places objects of one ring as a snapshot shows it."""

    def __init__(
        self,
        client: Client,
        state: RingState,
        kinds: RingKinds,
        *,
        most_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self.state = state
        self._kinds = kinds
        self._remembers = state.ring.spec.key in (KeyKind.LABEL, KeyKind.OWNER)
        """Under the other keys an object's own metadata shows its key."""
        self._ancestry = ControllerKeys(kinds, self._reader(client), most=most_remembered)

    def _reader(self, client: Client) -> Callable[[ControllerName], Awaitable[ControllerSeen]]:
        async def read(controller: ControllerName) -> ControllerSeen:
            return await read_controller(client, controller, kinds=self._kinds, keys=self.state.ring.keys)

        return read

    async def roles(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Role]:
        """The role of each of *metas* on the ring, with its key. Raises KubeError."""
        roles = [self._kinds.role(resource, meta) for meta in metas]
        found: list[Role] = []
        for meta, role in zip(metas, await self._ancestry.resolved(roles), strict=True):
            if isinstance(role, KubeError):
                raise role
            if self._remembers:
                self._ancestry.remember(resource, meta, role)
            found.append(role)
        return found

    async def desired(
        self, resource: ApiResource, metas: Sequence[Meta]
    ) -> list[tuple[Mapping[str, str], str, str]]:
        """Labels, desired member and main resource of each of *metas* that belongs to the ring. Raises KubeError."""
        found: list[tuple[Mapping[str, str], str, str]] = []
        for meta, role in zip(metas, await self.roles(resource, metas), strict=True):
            key, main = key_of(role), main_of(role)
            if key is not None:
                hashed = self.state.hash_rings.of(main)
                found.append((meta.labels, hashed.owner(key) if len(hashed) else "", main))
        return found

    async def rows(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Row]:
        """A row for each of *metas* that belongs to the ring. Raises KubeError."""
        name, roles = resource.group_resource, await self.roles(resource, metas)
        return [
            row(self.state, name, meta, key, main_of(role))
            for meta, role in zip(metas, roles, strict=True)
            if (key := key_of(role)) is not None
        ]


def row(state: RingState, resource: str, meta: Meta, key: str, main: str) -> Row:
    """The row of the object with *meta*, whose key is *key*, of a tree below a *main*."""
    keys, labels = state.ring.keys, meta.labels
    shard, drain = labels.get(keys.shard, ""), labels.get(keys.drain)
    owner = state.by_name.get(shard)
    hashed = state.hash_rings.of(main)
    found = hashed.explain(key) if len(hashed) else None
    member = found.owner if found else ""
    desired = state.active_shard(member)
    return Row(
        resource,
        meta.namespace,
        meta.name,
        state.name,
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
        main,
    )


def main_of(role: Role) -> str:
    """The main resource that an object of *role* is or follows; empty if only a controller shows it, or it is none."""
    return "" if isinstance(role, Outsider) else role.main


def key_of(role: Role) -> str | None:
    """The text that is hashed for an object of *role*; None if the ring does not distribute it."""
    match role:
        case Outsider():
            return None
        case Root(key=key):
            return key
        case Controlled(key=key, controller=controller):
            return key or controller.key
