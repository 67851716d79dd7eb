"""Which kinds make up the trees of a controller: those of its ring, the main one first."""

from __future__ import annotations

from collections.abc import Collection

from kubeio.errors import InputError
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.shard.ring import RingView
from proxy.informers import TreeKind
from proxy.settings import Settings


async def find_kinds(client: Client, view: RingView, settings: Settings) -> list[TreeKind]:
    """The kinds of the trees, the main one first. Raises: InputError, KubeError."""
    discovery = Discovery(client)
    main = await discovery.resolve(settings.resource or only_resource(view))
    names = [str(entry.main) for entry in view.spec.resources]
    controlled = [str(kind) for kind in view.entry(main).controlled_resources]
    check_trees(view, main.group_resource, controlled, settings.leaves)
    found = [TreeKind(main, is_main=True)]
    for name in controlled:
        found.append(
            TreeKind(await discovery.resolve(name), is_main=name in names, is_leaf=name in settings.leaves)
        )
    return found


def only_resource(view: RingView) -> str:
    """The resource that the ring distributes. Raises: InputError if there are several."""
    names = [str(entry.main) for entry in view.spec.resources]
    if len(names) != 1:
        raise InputError("--resource", "", "is missing", f"the ring distributes {', '.join(names)}: name one")
    return names[0]


def check_trees(view: RingView, main: str, controlled: Collection[str], leaves: Collection[str]) -> None:
    """See that trees of *main* and what it has *controlled* move as a whole. Raises: InputError."""
    if unknown := sorted(set(leaves) - set(controlled)):
        remedy = f"use some of {', '.join(controlled) or 'none'}"
        raise InputError("--leaves", unknown[0], f"is not controlled by {main} in this ring", remedy)
    if view.spec.key != "Owner" and set(controlled) - set(leaves):
        name = sorted(set(controlled) - set(leaves))[0]
        remedy = "set it to Owner, or name the resource in --leaves if its objects control nothing"
        raise InputError(
            "spec.key", view.spec.key, f"tears trees apart: {name} may control other objects", remedy
        )
