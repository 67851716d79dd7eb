"""`ringleader list [KIND]` and `ringleader list -`: objects with owner and desired owner, a line for each.

Objects are read page by page and nothing is kept: memory does not follow their number.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import InputError, NotFound
from kubeio.models import GroupResource, HasMeta, ObjectKey
from ringleader.cluster.objects import PAGE, Placer, Row, read_ahead, resolve_kind, ring_kinds
from ringleader.cluster.ring import choose_ring, named_ring
from ringleader.cluster.snapshot import ClusterReader
from ringleader.list.lines import FORM, BrokenLine, NamedObject, parse_lines
from ringleader.list.rows import RowWriter
from ringleader.options import ConnectionOptions, connected

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.snapshot import RingState, Snapshot

READS_AT_ONCE: Final = 16
STDIN: Final = "-"
Advance = Callable[[int, int], None]


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
    if kind == STDIN:
        if all_namespaces or with_dependents:
            flag = "-A" if all_namespaces else "--with-dependents"
            raise InputError(flag, True, "does not go with -, which names each object", "leave it out")
        return _list_named(where, sys.stdin.buffer.read(), namespace=namespace, ring=ring, form=form)
    writer = RowWriter(form)

    async def all_of(client: Client, cluster: Cluster) -> None:
        from kubeio.rest.discovery import Discovery

        space = "" if all_namespaces else namespace or cluster.namespace
        wanted = Selection(kind, space, ring, with_dependents)
        reader = ClusterReader(client, timeout_s=where.timeout_s)
        snapshot = (await reader.snapshot()).require("rings", "leases")
        with progress() as advance:
            pages = read_rows(reader, Discovery(client), snapshot, wanted, advance)
            is_begun = False
            async for rows in pages:
                if not is_begun:
                    writer.begin()
                    is_begun = True
                writer.write(rows)
            if not is_begun:
                writer.begin()
        writer.end()

    connected(where, all_of)
    return 0


async def read_rows(
    reader: ClusterReader,
    discovery: Discovery,
    snapshot: Snapshot,
    wanted: Selection,
    advance: Advance | None = None,
) -> AsyncIterator[list[Row]]:
    """The rows of *wanted*, a page at a time; objects of one page are of one version. Raises: InputError, KubeError."""
    rings = [each.ring for each in snapshot.rings]
    resource = await resolve_kind(discovery, rings, wanted.kind) if wanted.kind is not None else None
    chosen = list(snapshot.rings)
    if wanted.ring is not None:
        chosen = [snapshot.of(named_ring(rings, wanted.ring, flag="--ring").name)]
    elif resource is not None:
        kind = GroupResource(resource.group, resource.plural)
        chosen = [each for each in chosen if kind in each.ring.kinds]
    if resource is not None and not any(
        GroupResource(resource.group, resource.plural) in each.ring.kinds for each in chosen
    ):
        choose_ring(rings, resource, wanted.ring)  # raises, and names what there is
    for state in chosen:
        async for rows in _ring_rows(reader, discovery, snapshot, state, resource, wanted, advance):
            yield rows


async def _ring_rows(  # noqa: PLR0917
    reader: ClusterReader,
    discovery: Discovery,
    snapshot: Snapshot,
    state: RingState,
    only: ApiResource | None,
    wanted: Selection,
    advance: Advance | None,
) -> AsyncIterator[list[Row]]:
    kinds = await ring_kinds(discovery, state.ring)
    placer = Placer(reader.client, state, kinds)
    for resource in kinds.resources:
        if only is not None and resource.group_resource != only.group_resource:
            continue
        if only is None and not (wanted.with_dependents or kinds.is_main(resource)):
            continue
        space = wanted.namespace if resource.namespaced else ""
        async for page in read_ahead(reader.client, resource, namespace=space, timeout_s=reader.timeout_s):
            metas = [found.meta for found in page.objects if snapshot.wants(state.ring, found.meta)]
            rows = await placer.rows(resource, metas)
            if advance is not None:
                advance(len(page.objects), page.remaining or 0)
            yield rows


@contextmanager
def progress() -> Iterator[Advance]:
    """Shows (objects done now, objects left) on stderr, if it is a terminal and the rows go elsewhere."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _done, _left: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("objects", total=None)

        def advance(done: int, left: int) -> None:
            shown.advance(task, done)
            shown.update(task, total=shown.tasks[0].completed + left)

        yield advance


# ---- objects that standard input names ------------------------------------------------------------------------


def _list_named(
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
        finder = _Finder(reader, Discovery(client), snapshot, ring, namespace or cluster.namespace)
        writer.begin()
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


class _Finder:
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
        import asyncio

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
