"""`ringleader where --all` and `where -f FILE`: many objects, a line for each, as they come.

Owns the reading by pages and the forms of the lines; nothing is kept, so memory does not follow the number of objects.
`placing` says where each one is.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError, NotFound
from kubeio.models import HasMeta, ObjectKey
from ringleader.inspect.cluster.keys import ring_kinds
from ringleader.inspect.cluster.placing import Placer, Row
from ringleader.inspect.cluster.reading import PAGE, named_ring, read_ahead, read_lives, read_rings
from ringleader.inspect.cluster.terms import read_selection
from ringleader.inspect.where.one import choose_ring, resolve_kind
from ringleader.inspect.where.rows import RowWriter
from ringleader.inspect.where.targets import Broken, Wanted, read_targets
from ringleader.options import ConnectionOptions, connected

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.inspect.cluster.rings import Ring

READS_AT_ONCE: Final = 16
Advance = Callable[[int, int], None]


# ---- every object ---------------------------------------------------------------------------------------------


def run_everywhere(
    where: ConnectionOptions, *, namespace: str | None, ring: str | None, controlled: bool, form: str
) -> int:
    """`where --all`: every object that rings distribute; those that follow them as well if *controlled*."""
    writer = RowWriter(form)

    async def all_of(client: Client, cluster: Cluster) -> None:
        from kubeio.rest.discovery import Discovery

        rings = await read_rings(client, timeout_s=where.timeout_s)
        chosen = rings if ring is None else [named_ring(rings, ring)]
        discovery = Discovery(client)
        writer.begin()
        with progress() as advance:
            for each in chosen:
                async for rows in ring_rows(
                    client,
                    discovery,
                    each,
                    namespace=namespace or "",
                    controlled=controlled,
                    timeout_s=where.timeout_s,
                    advance=advance,
                ):
                    writer.write(rows)
        writer.end()

    connected(where, all_of)
    return 0


async def ring_rows(
    client: Client,
    discovery: Discovery,
    ring: Ring,
    *,
    namespace: str,
    controlled: bool,
    timeout_s: float,
    advance: Advance | None = None,
) -> AsyncIterator[list[Row]]:
    """The rows of *ring*, a page at a time; objects of one page are of one version. Raises KubeError."""
    kinds = await ring_kinds(discovery, ring)
    placer = Placer(client, ring, kinds, await read_lives(client, ring))
    selection = await read_selection(client, ring.name, timeout_s=timeout_s)
    wanted = [each for each in kinds.resources if controlled or kinds.is_main(each)]
    for resource in wanted:
        if namespace and not resource.namespaced:
            continue
        async for page in read_ahead(client, resource, namespace=namespace, timeout_s=timeout_s):
            metas = [found.meta for found in page.objects if selection.wants(found.meta, ring.keys)]
            rows = await placer.rows(resource, metas)
            if advance is not None:
                advance(len(page.objects), page.remaining or 0)
            yield rows


@contextmanager
def progress() -> Iterator[Advance]:
    """Tells (objects done now, objects left) on stderr, if somebody looks there and the rows go elsewhere."""
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


# ---- objects of a file ----------------------------------------------------------------------------------------


def run_file(
    where: ConnectionOptions, source: str, *, namespace: str | None, ring: str | None, form: str
) -> int:
    """`where -f FILE`: the objects that *source* names. 2 if some of it cannot be used; the rest is answered."""
    targets = read_targets(source)
    writer, problems = RowWriter(form), [each for each in targets if isinstance(each, Broken)]
    wanted = [each for each in targets if isinstance(each, Wanted)]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")

    async def some_of(client: Client, cluster: Cluster) -> int:
        asker = _Asker(client, ring, namespace or cluster.namespace, timeout_s=where.timeout_s)
        await asker.prepare()
        writer.begin()
        missing = 0
        for begin in range(0, len(wanted), PAGE):
            rows, failed = await asker.answers(wanted[begin : begin + PAGE])
            writer.write(rows)
            for problem in failed:
                sys.stderr.write(f"error: {problem}\n")
            missing += len(failed)
        writer.end()
        return missing

    missing = connected(where, some_of)
    return 2 if problems or missing else 0


class _Asker:
    """Finds single objects, several at a time; rings and Leases are read once."""

    def __init__(self, client: Client, ring: str | None, namespace: str, *, timeout_s: float) -> None:
        self._client = client
        self._ring_name = ring
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._rings: list[Ring] = []
        self._placers: dict[str, Placer] = {}

    async def prepare(self) -> None:
        from kubeio.rest.discovery import Discovery

        self._discovery = Discovery(self._client)
        self._rings = await read_rings(self._client, timeout_s=self._timeout_s)
        if self._ring_name is not None:
            named_ring(self._rings, self._ring_name)

    async def answers(self, wanted: Sequence[Wanted]) -> tuple[list[Row], list[Broken]]:
        """The rows of *wanted*, in their order, and what could not be answered."""
        import asyncio

        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def one(target: Wanted) -> Row | Broken:
            async with slots:
                try:
                    return await self._answer(target)
                except InputError as error:
                    return Broken(target.source, target.line, target.text, str(error))

        found = await asyncio.gather(*map(one, wanted))
        return [each for each in found if isinstance(each, Row)], [
            each for each in found if isinstance(each, Broken)
        ]

    async def _answer(self, target: Wanted) -> Row | Broken:
        resource = await resolve_kind(self._discovery, self._rings, target.kind)
        ring = choose_ring(self._rings, resource, self._ring_name)
        placer = await self._placer(ring)
        space = (target.namespace or self._namespace) if resource.namespaced else ""
        try:
            found = await self._client.get(
                resource,
                target.name,
                namespace=space,
                type=HasMeta,
                metadata_only=True,
                timeout_s=self._timeout_s,
            )
        except NotFound:
            shown = f"{resource.group_resource}/{ObjectKey(space, target.name)}"
            return Broken(target.source, target.line, target.text, f"{shown} does not exist")
        rows = await placer.rows(resource, [found.metadata])
        if not rows:
            return Broken(
                target.source,
                target.line,
                target.text,
                f"has no controller, so ring {ring.name} does not distribute it",
            )
        return rows[0]

    async def _placer(self, ring: Ring) -> Placer:
        if ring.name not in self._placers:
            kinds = await ring_kinds(self._discovery, ring)
            lives = await read_lives(self._client, ring)
            self._placers.setdefault(ring.name, Placer(self._client, ring, kinds, lives))
        return self._placers[ring.name]
