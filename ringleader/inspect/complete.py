"""Names for shell completion, asked of the cluster: rings, members, kinds and objects.

A completion that fails says nothing: every error ends in no suggestions, within `WITHIN_S`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

WITHIN_S: Final = 2.0
RING_KINDS: Final = ("ring", "controllerring")
_MOST: Final = 200
Ask = Callable[["Client", "Cluster"], Awaitable[list[str]]]


def complete_ring(context: typer.Context, incomplete: str) -> list[str]:
    """Rings whose names begin so."""
    return _suggested(context, _rings, incomplete)


def complete_member(context: typer.Context, incomplete: str) -> list[str]:
    """Members of all rings, or of the one that --ring names, whose names begin so."""
    wanted = context.params.get("ring")

    async def members(client: Client, _: Cluster) -> list[str]:
        from ringleader.cluster.reader import read_rings, read_shards

        rings = await read_rings(client, timeout_s=WITHIN_S)
        chosen = [ring for ring in rings if wanted in (None, ring.name)]
        return [shard.member for ring in chosen for shard in await read_shards(client, ring)]

    return _suggested(context, members, incomplete)


def complete_object(context: typer.Context, incomplete: str) -> list[str]:
    """`website/blog`: kinds that rings distribute, and names of the only one that is left, in the namespace meant."""
    kind, slash, _ = incomplete.partition("/")
    if slash and kind in RING_KINDS:
        return [f"{kind}/{name}" for name in complete_ring(context, incomplete.partition("/")[2])]

    async def objects(client: Client, cluster: Cluster) -> list[str]:
        from kubeio.rest.discovery import Discovery
        from ringleader.cluster.objects import resolve_kind
        from ringleader.cluster.reader import read_rings

        rings = await read_rings(client, timeout_s=WITHIN_S)
        begun = kind
        if not slash:
            names = {main for ring in rings for main in ring.mains}
            fitting = [name for name in names if name.startswith(incomplete)]
            if len(fitting) != 1:
                return [f"{name}/" for name in fitting]
            begun = fitting[0]
        resource = await resolve_kind(Discovery(client), rings, begun)
        space = (context.params.get("namespace") or cluster.namespace) if resource.namespaced else ""
        page = await client.list_page(
            resource, namespace=space, limit=_MOST, metadata_only=True, timeout_s=WITHIN_S
        )
        return [f"{begun}/{found.meta.name}" for found in page.objects]

    return _suggested(context, objects, incomplete)


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds that rings distribute."""

    async def kinds(client: Client, _: Cluster) -> list[str]:
        from ringleader.cluster.reader import read_rings

        return [str(kind) for ring in await read_rings(client, timeout_s=WITHIN_S) for kind in ring.kinds]

    return _suggested(context, kinds, incomplete)


async def _rings(client: Client, _: Cluster) -> list[str]:
    from ringleader.cluster.reader import read_rings

    return [ring.name for ring in await read_rings(client, timeout_s=WITHIN_S)]


def _suggested(context: typer.Context, ask: Ask, incomplete: str) -> list[str]:
    try:
        found = _asked(context.params, ask)
    except Exception:  # the shell shows whatever is written now in the middle of somebody's command
        return []
    return sorted({name for name in found if name.startswith(incomplete)})


def _asked(flags: dict[str, Any], ask: Ask) -> list[str]:
    import asyncio
    from dataclasses import replace

    from ringleader.options import connected, connection_of

    async def within(client: Client, cluster: Cluster) -> list[str]:
        async with asyncio.timeout(WITHIN_S):
            return await ask(client, cluster)

    return connected(replace(connection_of(flags), timeout_s=WITHIN_S), within)
