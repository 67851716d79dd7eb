"""`ringleader list [KIND]` and `ringleader list -`: objects with owner and desired owner, a line for each.

Objects are read page by page and nothing is kept: memory does not follow their number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import InputError
from kubeio.models import GroupResource
from ringleader.cluster.objects import note_unserved, object_pages, resolve_kind, ring_kinds
from ringleader.cluster.placement import Placer, Row
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.ring import choose_ring, named_ring
from ringleader.list.named import list_named
from ringleader.list.rows import RowWriter
from ringleader.options import ConnectionOptions, connected
from ringleader.progress import Advance, progress

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.snapshot import Snapshot

STDIN: Final = "-"
_VERSION: Final = re.compile(r"v\d+((alpha|beta)\d+)?")


class Selection(NamedTuple):
    """Objects of *kind* or all, in *namespace* (empty: all), of *ring* or all."""

    kind: str | None = None
    namespace: str = ""
    ring: str | None = None
    with_dependents: bool = False


def run_list(
    where: ConnectionOptions,
    kind: str | None,
    *,
    namespace: str | None,
    all_namespaces: bool,
    ring: str | None,
    with_dependents: bool,
    form: str,
) -> int:
    """The command; 2 if some line of standard input cannot be used."""
    if all_namespaces and namespace:
        raise InputError("-n", namespace, "contradicts -A", "give one of the two")
    if kind is not None and _names_an_object(kind):
        remedy = f"name its kind alone; about one object: ringleader describe {kind}"
        raise InputError("KIND", kind, "names an object", remedy)
    if kind == STDIN:
        if all_namespaces or with_dependents:
            flag = "-A" if all_namespaces else "--with-dependents"
            raise InputError(flag, True, "does not go with -, which names each object", "leave it out")
        return list_named(where, sys.stdin.buffer.read(), namespace=namespace, ring=ring, form=form)
    writer = RowWriter(form)

    async def all_of(client: Client, cluster: Cluster) -> None:
        from kubeio.rest.discovery import Discovery

        space = "" if all_namespaces else namespace or cluster.namespace
        wanted = Selection(kind, space, ring, with_dependents)
        reader = ClusterReader(client, timeout_s=where.timeout_s)
        snapshot = (await reader.snapshot()).require("rings", "leases")
        with progress("objects", shares_output=True) as advance:
            async for rows in read_rows(reader, Discovery(client), snapshot, wanted, advance):
                writer.write(rows)
        writer.end()
        if writer.is_empty and form in ("", "wide"):
            place = f"in namespace {space}; -A lists every namespace" if space else "in this cluster"
            sys.stderr.write(f"note: no distributed object {place}\n")

    connected(where, all_of)
    return 0


async def read_rows(
    reader: ClusterReader,
    discovery: Discovery,
    snapshot: Snapshot,
    wanted: Selection,
    advance: Advance = lambda done, left=None: None,
) -> AsyncIterator[list[Row]]:
    """The rows of *wanted*, a page at a time; objects of one page are of one version. Raises: InputError, KubeError."""
    rings = [each.ring for each in snapshot.rings]
    only = await resolve_kind(discovery, rings, wanted.kind) if wanted.kind is not None else None
    if wanted.ring is not None:
        named_ring(rings, wanted.ring, flag="--ring")
    chosen = [each for each in snapshot.rings if _is_wanted(each.ring, wanted, only)]
    if only is not None and not chosen:
        choose_ring(rings, only, wanted.ring)  # raises, and names what there is
    for state in chosen:
        kinds = await ring_kinds(discovery, state.ring)
        note_unserved(state.ring, kinds)
        placer = Placer(reader.client, state, kinds)
        resources = [
            each
            for each in kinds.resources
            if (
                each.group_resource == only.group_resource
                if only
                else wanted.with_dependents or kinds.is_main(each)
            )
        ]
        async for resource, objects in object_pages(
            reader.client, resources, namespace=wanted.namespace, advance=advance, timeout_s=reader.timeout_s
        ):
            metas = [each.meta for each in objects if snapshot.wants(state.ring, each.meta)]
            yield await placer.rows(resource, metas)


def _names_an_object(text: str) -> bool:
    """Whether *text* is KIND/NAME rather than a kind in a version, such as `websites.example.com/v1`."""
    _, slash, rest = text.partition("/")
    return bool(slash) and _VERSION.fullmatch(rest) is None


def _is_wanted(ring: Ring, wanted: Selection, only: ApiResource | None) -> bool:
    """Whether objects of *ring* are asked for; *only*: those of one kind."""
    has_kind = only is None or GroupResource(only.group, only.plural) in ring.kinds
    return has_kind and wanted.ring in (None, ring.name)
