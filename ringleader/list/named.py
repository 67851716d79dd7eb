"""`ringleader list -`: the objects that lines of standard input name."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError, NotFound
from kubeio.models import HasMeta, ObjectKey
from ringleader.cluster.objects import PAGE, resolve_kind, ring_kinds
from ringleader.cluster.placement import Placer, Row
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.ring import choose_ring, named_ring
from ringleader.list.lines import FORM, BrokenLine, NamedObject, parse_lines
from ringleader.list.rows import RowWriter
from ringleader.options import ConnectionOptions, connected

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.snapshot import Snapshot

READS_AT_ONCE: Final = 16


def list_named(
    where: ConnectionOptions, body: bytes, *, namespace: str | None, ring: str | None, form: str
) -> int:
    """`list -`: 2 if some lines cannot be used; the rest is answered."""
    try:
        parsed = list(parse_lines(body.decode()))
    except UnicodeDecodeError as error:
        raise InputError("-", "standard input", f"is no text (byte {error.start})", FORM) from None
    if not parsed:
        raise InputError("-", "standard input", "names no object", FORM)
    writer = RowWriter(form)
    broken = [each for each in parsed if isinstance(each, BrokenLine)]
    named = [each for each in parsed if isinstance(each, NamedObject)]
    _report(broken)

    async def some_of(client: Client, cluster: Cluster) -> int:
        from kubeio.rest.discovery import Discovery

        reader = ClusterReader(client, timeout_s=where.timeout_s)
        snapshot = (await reader.snapshot()).require("rings", "leases")
        finder = Finder(reader, Discovery(client), snapshot, ring, namespace or cluster.namespace)
        missing = 0
        for begin in range(0, len(named), PAGE):
            answers = await finder.answers(named[begin : begin + PAGE])
            writer.write([each for each in answers if isinstance(each, Row)])
            failed = [each for each in answers if isinstance(each, BrokenLine)]
            _report(failed)
            missing += len(failed)
        writer.end()
        return missing

    missing = connected(where, some_of)
    return 2 if broken or missing else 0


def _report(broken: Sequence[BrokenLine]) -> None:
    for each in broken:
        sys.stderr.write(f"error: {each}\n")


class Finder:
    """Finds single objects, several at a time."""

    def __init__(
        self,
        reader: ClusterReader,
        discovery: Discovery,
        snapshot: Snapshot,
        ring: str | None,
        namespace: str,
    ) -> None:
        self._reader = reader
        self._discovery = discovery
        self._snapshot = snapshot
        self._rings = [each.ring for each in snapshot.rings]
        self._ring = ring
        self._namespace = namespace
        self._placers: dict[str, Placer] = {}
        if ring is not None:
            named_ring(self._rings, ring, flag="--ring")

    async def answers(self, named: Sequence[NamedObject]) -> list[Row | BrokenLine]:
        """The row of each of *named*, or why there is none, in their order."""
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def one(target: NamedObject) -> Row | BrokenLine:
            async with slots:
                try:
                    return await self._answer(target)
                except InputError as error:
                    return BrokenLine(target.line, target.text, str(error))

        return list(await asyncio.gather(*map(one, named)))

    async def _answer(self, target: NamedObject) -> Row | BrokenLine:
        resource = await resolve_kind(self._discovery, self._rings, target.kind)
        ring = choose_ring(self._rings, resource, self._ring)
        if ring.name not in self._placers:
            kinds = await ring_kinds(self._discovery, ring)
            self._placers.setdefault(
                ring.name, Placer(self._reader.client, self._snapshot.of(ring.name), kinds)
            )
        space = (target.namespace or self._namespace) if resource.namespaced else ""
        try:
            found = await self._reader.client.get(
                resource,
                target.name,
                namespace=space,
                type=HasMeta,
                metadata_only=True,
                timeout_s=self._reader.timeout_s,
            )
        except NotFound:
            shown = f"{resource.group_resource}/{ObjectKey(space, target.name)}"
            return BrokenLine(target.line, target.text, f"{shown} does not exist")
        rows = await self._placers[ring.name].rows(resource, [found.metadata])
        outsider = f"has no controller, so ring {ring.name} does not distribute it"
        return rows[0] if rows else BrokenLine(target.line, target.text, outsider)
