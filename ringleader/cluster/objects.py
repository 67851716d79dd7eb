"""Objects of a ring: pages of metadata with role, key, owner and desired owner of each. One stream for all commands.

Owns how a kind and an object are named, and the words for where a key comes from; the key itself is
`sharder.planning.keys`'. A key that only an object's controller shows is read from there, once for each controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import InputError, KubeError
from kubeio.models import GroupResource
from kubeio.suggestions import nearest
from ringleader.cluster.managed_fields import DatedMeta, HasDatedMeta
from sharder.planning.controllers import MAX_REMEMBERED, ControllerKeys, read_controller
from sharder.planning.keys import Controlled, Outsider, RingKinds, Role, Root
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from kubeio.models import Meta, ObjectKey, OwnerReference
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client, Page
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.snapshot import RingState
    from sharder.planning.keys import ControllerName
    from sharder.planning.planner import ControllerSeen

PAGE: Final = 1000
"""Objects of one page: a request of this size takes an API server some 20 ms."""
RELEASE: Final = "(release)"
"""In the place of a drain's target: the object is to be given up."""


# ---- kinds and names ------------------------------------------------------------------------------------------


async def ring_kinds(discovery: Discovery, ring: Ring) -> RingKinds:
    """The kinds of *ring*, as the sharder resolves them. Raises: InputError for one that is not served, KubeError."""
    return RingKinds(ring.spec, {kind: await discovery.resolve(str(kind)) for kind in ring.kinds})


def parse_target(text: str) -> tuple[str, str]:
    """Kind and name of `website/blog`. Raises: InputError."""
    kind, slash, name = text.partition("/")
    if not (kind and slash and name) or "/" in name:
        raise InputError("KIND/NAME", text, "does not name one object", "write it as website/blog")
    return kind, name


async def resolve_kind(discovery: Discovery, rings: Sequence[Ring], text: str) -> ApiResource:
    """The resource that *text* names as kubectl would: of several, the one that a ring distributes.

    Raises: InputError, KubeError.
    """
    candidates = await discovery.candidates(text)
    distributed = {kind for ring in rings for kind in ring.kinds}
    fitting = [each for each in candidates if GroupResource(each.group, each.plural) in distributed]
    if len(fitting) > 1:
        names = ", ".join(each.group_resource for each in fitting)
        raise InputError("KIND", text, f"is ambiguous: rings distribute {names}", "write one of them out")
    return (fitting or candidates)[0]


async def read_object(
    client: Client, resource: ApiResource, key: ObjectKey, *, timeout_s: float
) -> DatedMeta:
    """Metadata of the object *key*. Raises: InputError naming the nearest ones if it does not exist, KubeError."""
    from kubeio.errors import NotFound

    namespace = key.namespace if resource.namespaced else ""
    try:
        found = await client.get(
            resource,
            key.name,
            namespace=namespace,
            type=HasDatedMeta,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    except NotFound:
        page = await client.list_page(resource, namespace=namespace, metadata_only=True, timeout_s=timeout_s)
        place = f"namespace {namespace}" if namespace else "the cluster"
        remedy = f"name another: {nearest(key.name, [each.meta.name for each in page.objects])}"
        if namespace:
            remedy += " (-n NAME looks in another namespace)"
        shown = f"{resource.group_resource}/{key.name}"
        raise InputError("KIND/NAME", shown, f"does not exist in {place}", remedy) from None
    return found.metadata


def named(resource: ApiResource, meta: Meta) -> str:
    """An object in the words that `ringleader describe` takes: `website/blog -n sites`."""
    tail = f" -n {meta.namespace}" if meta.namespace else ""
    return f"{resource.kind.lower()}/{meta.name}{tail}"


# ---- keys -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """The text that is hashed for an object, and where it comes from. *main*: the kind at the root of its tree."""

    text: str
    source: str
    main: str = ""


async def read_key(client: Client, kinds: RingKinds, ring: Ring, resource: ApiResource, meta: Meta) -> Key:
    """The key of an object (protocol, section 3). Raises: InputError for an outsider, KubeError."""
    role = kinds.role(resource, meta)
    match role:
        case Root(key=key, main=main):
            return Key(key, _source_of_root(ring, meta, key), main)
        case Controlled(key=str() as key, main=main):
            return Key(key, _source_of_controlled(ring, meta), main)
        case Controlled(controller=controller):
            seen = await read_controller(client, controller, kinds=kinds, keys=ring.keys)
            if not seen.is_outsider:
                text = seen.key or controller.key
                return Key(text, _source_of_controlled(ring, meta), seen.main or role.main)
        case _:
            pass
    raise InputError(
        "KIND/NAME",
        f"{resource.group_resource}/{meta.key}",
        f"has no controller, so ring {ring.name} does not distribute it",
        f"ask for an object that a {(ring.mains or ['main resource'])[0]} controls",
    )


def _source_of_root(ring: Ring, meta: Meta, key: str) -> str:
    match ring.spec.key:
        case KeyKind.NAMESPACE if meta.namespace:
            return "its namespace"
        case KeyKind.LABEL if key.startswith("="):
            return f"the value of its label {ring.spec.key_label}"
        case KeyKind.LABEL:
            return f"group, namespace and name of the object itself: it has no label {ring.spec.key_label}"
        case _:
            return "group, namespace and name of the object itself"


def _source_of_controlled(ring: Ring, meta: Meta) -> str:
    controller = meta.controller
    above = _shown(controller) if controller is not None else ""
    match ring.spec.key:
        case KeyKind.NAMESPACE:
            return f"as its controller, {above}"
        case KeyKind.LABEL:
            return f"label {ring.spec.key_label} of its controller, {above}"
        case KeyKind.OWNER:
            return f"group, namespace and name of its root owner, above {above}"
        case _:
            return f"group, namespace and name of its controller, {above}"


def _shown(controller: OwnerReference) -> str:
    return f"{controller.kind} {controller.name}"


# ---- pages ----------------------------------------------------------------------------------------------------


async def read_ahead(
    client: Client,
    resource: ApiResource,
    *,
    namespace: str = "",
    label_selector: str = "",
    timeout_s: float,
) -> AsyncIterator[Page]:
    """Pages of metadata; the next one is read while the present one is worked off. Raises KubeError."""
    pages = aiter(
        client.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            limit=PAGE,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    )

    async def next_page() -> Page | None:
        return await anext(pages, None)

    asked = asyncio.create_task(next_page(), name="next page")
    try:
        while (page := await asked) is not None:
            asked = asyncio.create_task(next_page(), name="next page")
            await asyncio.sleep(0)  # the request goes out before the page is worked off
            yield page
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


# ---- where each one is and belongs ----------------------------------------------------------------------------


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
        self._state = state
        self._kinds = kinds
        self._remembers = state.ring.spec.key in (KeyKind.LABEL, KeyKind.OWNER)
        """Under the other keys an object's own metadata shows its key."""
        self._ancestry = ControllerKeys(kinds, self._reader(client), most=most_remembered)

    def _reader(self, client: Client) -> Callable[[ControllerName], Awaitable[ControllerSeen]]:
        async def read(controller: ControllerName) -> ControllerSeen:
            return await read_controller(client, controller, kinds=self._kinds, keys=self._state.ring.keys)

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

    async def rows(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Row]:
        """A row for each of *metas* that belongs to the ring. Raises KubeError."""
        name, roles = resource.group_resource, await self.roles(resource, metas)
        return [
            row(self._state, name, meta, key, main_of(role))
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


def known_key(role: Role) -> str | None:
    """The key of an object of *role*, if no controller need be read for it."""
    return None if isinstance(role, Outsider) else role.key


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
