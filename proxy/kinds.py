"""The kinds of a ring's trees that one controller works."""

from __future__ import annotations

from kubeio.errors import InputError
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.shard.ring import RingView
from proxy.informers import TreeKind
from proxy.settings import Settings


async def find_kinds(client: Client, view: RingView, settings: Settings) -> list[TreeKind]:
    """The kinds of the trees, the main one first. Raises: InputError, KubeError."""
    discovery = Discovery(client)
    names = [str(entry.main) for entry in view.spec.resources]
    if not settings.resource and len(names) != 1:
        raise InputError("--resource", "", "is missing", f"the ring distributes {', '.join(names)}: name one")
    main = await discovery.resolve(settings.resource or names[0])
    controlled = [str(kind) for kind in view.entry(main).controlled_resources]
    if unknown := sorted(settings.leaves - set(controlled)):
        remedy = f"use some of {', '.join(controlled) or 'none'}"
        raise InputError(
            "--leaves", unknown[0], f"is not controlled by {main.group_resource} in this ring", remedy
        )
    if view.spec.key != "Owner" and set(controlled) - settings.leaves:
        name = sorted(set(controlled) - settings.leaves)[0]
        remedy = "set it to Owner, or name the resource in --leaves if its objects control nothing"
        raise InputError(
            "spec.key", view.spec.key, f"tears trees apart: {name} may control other objects", remedy
        )
    found = [TreeKind(main, is_main=True)]
    for name in controlled:
        found.append(
            TreeKind(await discovery.resolve(name), is_main=name in names, is_leaf=name in settings.leaves)
        )
    return found
