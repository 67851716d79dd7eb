"""Owner chains: the owner of an object's controller, and the key that it follows. Reads only.

One GET shows the owner. The key under `Owner` takes as many as the tree is deep. `ControllerKeys` remembers keys for
one pass, so that not every controlled object costs a read.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import KubeError, NotFound, ServerFailure
from kubeio.models import HasMeta
from sharder.planning.keys import Controlled, Outsider, Role, Root
from sharder.planning.planner import ControllerSeen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kubeio.models import Meta
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from sharder.planning.keys import ControllerName, RingKinds

MAX_DEPTH: Final = 16
"""Trees are not followed higher than this: owner references can form a cycle."""
MAX_REMEMBERED: Final = 50_000
"""Keys remembered for one pass, about 10 MB; further ones are read each time."""
READS_AT_ONCE: Final = 16


async def read_controller(
    client: Client, controller: ControllerName, *, kinds: RingKinds, keys: RingKeys
) -> ControllerSeen:
    """The nearest owner above a controlled object, and its key, by consistent reads begun now. Raises KubeError."""
    owner: str | None = None
    at = controller
    for depth in range(MAX_DEPTH):
        meta = await _read(client, at)
        if meta is None:
            return ControllerSeen(owner, exists=depth > 0, key=at.key)
        owner = owner or meta.labels.get(keys.shard)
        match kinds.role(at.resource, meta):
            case Root(key=key, main=main):
                return ControllerSeen(owner, key=key, main=main)
            case Outsider(unserved=True):
                why = "the kind that controls it is not served now"
                raise ServerFailure(f"GET {at.resource.group_resource} {at.name}", status=503, message=why)
            case Outsider():
                return ControllerSeen(owner, is_outsider=True)
            case Controlled(key=key, controller=above, main=main):
                if key is not None and owner is not None:
                    return ControllerSeen(owner, key=key, main=main)
                at = above
    return ControllerSeen(owner, key=at.key)


async def _read(client: Client, name: ControllerName) -> Meta | None:
    """The object of that name and uid; None if it is gone."""
    try:
        found = await client.get(
            name.resource, name.name, namespace=name.namespace, type=HasMeta, metadata_only=True
        )
    except NotFound:
        return None
    return found.metadata if found.metadata.uid == name.uid else None


class _Place(NamedTuple):
    """Placement of a tree: its key, and the kind at its root."""

    key: str
    main: str


class ControllerKeys:
    """Keys that depend on controllers, by the controller's uid; None: it is not of the ring."""

    def __init__(
        self,
        kinds: RingKinds,
        read: Callable[[ControllerName], Awaitable[ControllerSeen]],
        *,
        most: int = MAX_REMEMBERED,
    ) -> None:
        self._kinds = kinds
        self._read = read
        self._most = most
        self._known: dict[str, _Place | None] = {}
        self._shared: dict[_Place, _Place] = {}

    def forget(self) -> None:
        """Forget all keys at the start of a pass: labels and references may have changed."""
        self._known.clear()
        self._shared.clear()

    def remember(self, resource: ApiResource, meta: Meta, role: Role) -> None:
        """Remember the key of an object that may control others: it is theirs too."""
        if not self._kinds.may_control(resource):
            return
        match role:
            case Root(key=key, main=main) | Controlled(key=str() as key, main=main):
                self._remember(meta.uid, _Place(key, main))
            case _:
                pass

    async def resolved(self, roles: Iterable[Role]) -> list[Role | KubeError]:
        """*roles* with every key; one that follows an outsider is an outsider.

        In the place of a role whose controller could not be read stands what that read raised.
        """
        roles = list(roles)
        unknown = {
            role.controller.uid: role.controller
            for role in roles
            if isinstance(role, Controlled) and role.key is None and role.controller.uid not in self._known
        }
        read = await self._read_all(unknown.values()) if unknown else {}
        return [self._with_key(role, read) for role in roles]

    def _with_key(self, role: Role, read: Mapping[str, _Place | KubeError | None]) -> Role | KubeError:
        if not isinstance(role, Controlled) or role.key is not None:
            return role
        uid = role.controller.uid
        found = read[uid] if uid in read else self._known[uid]
        if isinstance(found, KubeError):
            return found
        return Outsider() if found is None else replace(role, key=found.key, main=found.main or role.main)

    async def _read_all(
        self, controllers: Iterable[ControllerName]
    ) -> Mapping[str, _Place | KubeError | None]:
        slots = asyncio.Semaphore(READS_AT_ONCE)
        found: dict[str, _Place | KubeError | None] = {}

        async def read(controller: ControllerName) -> None:
            try:
                async with slots:
                    seen = await self._read(controller)
            except KubeError as error:
                found[controller.uid] = error
            else:
                place = _Place(seen.key or controller.key, seen.main)
                found[controller.uid] = None if seen.is_outsider else place

        async with asyncio.TaskGroup() as tasks:
            for controller in controllers:
                tasks.create_task(read(controller), name="read controller")
        for uid, each in found.items():
            if not isinstance(each, KubeError):
                self._remember(uid, each)
        return found

    def _remember(self, uid: str, place: _Place | None) -> None:
        if len(self._known) < self._most:
            self._known[uid] = None if place is None else self._shared.setdefault(place, place)
