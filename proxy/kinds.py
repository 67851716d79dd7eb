"""Which kinds make up the trees of a controller: those of its ring, with what may control each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kubeio.errors import InputError
from kubeio.models import GroupResource, OwnerReference
from kubeio.protocol import RingEntry
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.shard.ring import RingView


@dataclass(frozen=True, slots=True)
class TreeKind:
    """A resource of the ring. *is_main*: its objects are roots, unless the ring controls them.

    *is_leaf*: its objects control nothing. *above*: group and kind of what may control them.
    """

    resource: ApiResource
    is_main: bool = False
    is_leaf: bool = False
    above: frozenset[tuple[str, str]] = frozenset()

    @property
    def name(self) -> str:
        """`websites.example.com`."""
        return self.resource.group_resource

    def is_root(self, owner: OwnerReference | None) -> bool:
        """Whether an object of the kind that *owner* controls is the root of a tree."""
        return self.is_main and (owner is None or owner.group_kind not in self.above)


async def find_kinds(
    client: Client, view: RingView, *, resources: Iterable[str], leaves: Collection[str]
) -> list[TreeKind]:
    """The kinds of the trees of *resources*, or of all that the ring distributes. Raises: InputError, KubeError."""
    discovery = Discovery(client)
    mains = [(await discovery.resolve(name)).group_resource for name in resources]
    kinds = tree_kinds(view, mains, leaves)
    resolved = {kind: await discovery.resolve(str(kind)) for kind in kinds}
    return [
        TreeKind(
            resource,
            is_main=any(entry.main == kind for entry in view.spec.resources),
            is_leaf=str(kind) in leaves,
            above=frozenset((found.group, found.kind) for found in (resolved[each] for each in kinds[kind])),
        )
        for kind, resource in resolved.items()
    ]


def tree_kinds(
    view: RingView, mains: Sequence[str], leaves: Collection[str]
) -> dict[GroupResource, set[GroupResource]]:
    """Kinds of the trees of *mains* (empty: all that the ring distributes), each with those that may control it.

    Raises: InputError if the ring does not distribute one of *mains*, or tears their trees apart.
    """
    entries = {str(entry.main): entry for entry in view.spec.resources}
    for name in mains:
        if name not in entries:
            remedy = f"use {' or '.join(entries)}"
            raise InputError("--resources", name, "is not distributed by the ring", remedy)
    roots = [entries[name] for name in mains or entries]
    above: dict[GroupResource, set[GroupResource]] = {entry.main: set() for entry in roots}
    for entry in roots:
        for kind in view.below(entry):
            above.setdefault(kind, set())
    for entry in view.spec.resources:
        if entry.main in above:
            for kind in entry.controlled_resources:
                above[kind].update(_parents(entry, is_deep=view.spec.key == "Owner"))
    _check_leaves(above, leaves, key=view.spec.key)
    return above


def _parents(entry: RingEntry, *, is_deep: bool) -> list[GroupResource]:
    """What may control a kind that *entry* lists as controlled, as the sharder sees it."""
    return [entry.main, *entry.controlled_resources] if is_deep else [entry.main]


def _check_leaves(
    above: dict[GroupResource, set[GroupResource]], leaves: Collection[str], *, key: str
) -> None:
    controlled = [str(kind) for kind, parents in above.items() if parents]
    if unknown := sorted(set(leaves) - set(controlled)):
        remedy = f"use some of {', '.join(controlled) or 'none'}"
        raise InputError("--leaves", unknown[0], "is controlled by nothing in this ring", remedy)
    if key != "Owner" and (inner := sorted(set(controlled) - set(leaves))):
        remedy = "set it to Owner, or name the resource in --leaves if its objects control nothing"
        raise InputError("spec.key", key, f"tears trees apart: {inner[0]} may control other objects", remedy)
