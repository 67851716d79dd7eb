"""What the sharder hashes for an object, and where that came from: the protocol's section 3, from outside.

Owns the words for it; the key itself is `sharder.planning.keys`'. Reads controllers where only they can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeio.errors import InputError
from kubeio.models import Meta, OwnerReference
from kubeio.resource import ApiResource
from ringleader.inspect.cluster.rings import Kind, Ring
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from sharder.planning.keys import RingKinds


@dataclass(frozen=True, slots=True)
class Key:
    """What is hashed for an object, and where that came from; *main*: the kind at the root of its tree."""

    text: str
    source: str
    main: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The object that was asked for."""

    resource: ApiResource
    meta: Meta

    def __str__(self) -> str:
        return f"{self.resource.group_resource}/{self.meta.key}"


async def read_key(client: Client, discovery: Discovery, ring: Ring, target: Target) -> Key:
    """What the sharder hashes for *target* (protocol, section 3)."""
    from sharder.planning.controllers import read_controller
    from sharder.planning.keys import Controlled, Root

    kinds = await ring_kinds(discovery, ring)
    role = kinds.role(target.resource, target.meta)
    match role:
        case Root(key=key, main=main):
            return Key(key, _source_of_root(ring, target.meta, key), main)
        case Controlled(key=str() as key, main=main):
            return Key(key, _source_of_controlled(ring, target.meta), main)
        case Controlled(controller=controller):
            seen = await read_controller(client, controller, kinds=kinds, keys=ring.keys)
            if not seen.is_outsider:
                text = seen.key or controller.key
                return Key(text, _source_of_controlled(ring, target.meta), seen.main or role.main)
        case _:
            pass
    raise InputError(
        "KIND/NAME",
        str(target),
        f"has no controller, so ring {ring.name} does not distribute it",
        f"ask for an object that a {ring.spec.resources[0].kind.name} controls",
    )


async def ring_kinds(discovery: Discovery, ring: Ring) -> RingKinds:
    """The kinds of *ring*, as the sharder sees them."""
    from kubeio.models import GroupResource
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingResource, RingSpec

    def named(kind: Kind) -> GroupResource:
        return GroupResource(kind.group, kind.resource)

    resources = tuple(
        RingResource(named(each.kind), tuple(named(child) for child in each.controlled_resources))
        for each in ring.spec.resources
    )
    spec = RingSpec(
        name=ring.name,
        lease_namespace=ring.spec.lease_namespace,
        resources=resources,
        key=ring.spec.key,
        key_label=ring.spec.key_label,
    )
    wanted = {kind for entry in resources for kind in (entry.main, *entry.controlled)}
    return RingKinds(spec, {kind: await discovery.resolve(str(kind)) for kind in sorted(wanted)})


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
    named = _named(controller) if controller is not None else ""
    match ring.spec.key:
        case KeyKind.NAMESPACE:
            return f"as its controller, {named}"
        case KeyKind.LABEL:
            return f"label {ring.spec.key_label} of its controller, {named}"
        case KeyKind.OWNER:
            return f"group, namespace and name of its root owner, above {named}"
        case _:
            return f"group, namespace and name of its controller, {named}"


def _named(controller: OwnerReference) -> str:
    return f"{controller.kind} {controller.name}"
