"""`ringleader where --all` and `where -f FILE`: many objects, a line for each, as they come.

Owns the reading by pages and the forms of the lines; nothing is kept, so memory does not follow the number of objects.
`placing` says where each one is.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import InputError, NotFound
from kubeio.models import HasMeta, ObjectKey
from ringleader.inspect.placing import Placer, Row
from ringleader.inspect.reading import PAGE, named_ring, read_ahead, read_lives, read_rings
from ringleader.inspect.targets import Broken, Wanted, read_targets
from ringleader.inspect.terms import read_selection
from ringleader.inspect.where import choose_ring, resolve_kind, ring_kinds
from ringleader.options import Connection, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.inspect.rings import Ring

READS_AT_ONCE: Final = 16
_COLUMNS: Final = (
    "resource",
    "namespace",
    "name",
    "ring",
    "owner",
    "drain",
    "desired",
    "member",
    "placed",
    "state",
    "key",
    "hash",
    "token",
)
Advance = Callable[[int, int], None]
RELEASE: Final = "(release)"
"""In the place of a drain's target: the object is to be given up."""


class Writer:
    """Writes rows in one form as they come; *form* is csv, json, yaml, name, wide or a plain table."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._comma = ""
        self._is_empty = True
        self._csv = csv.writer(sys.stdout, lineterminator="\n")

    def begin(self) -> None:
        match self._form:
            case "csv":
                self._csv.writerow(_COLUMNS)
            case "json":
                sys.stdout.write('{"objects": [')
            case "yaml":
                sys.stdout.write("objects:")
            case "name":
                pass
            case _:
                self._line("OBJECT", "OWNER", "DESIRED", "DRAIN", "HASH", "TOKEN")

    def write(self, rows: Sequence[Row]) -> None:
        """*rows*, after those that were written before."""
        self._is_empty = self._is_empty and not rows
        match self._form:
            case "csv":
                self._csv.writerows(map(_cells, rows))
            case "json":
                for row in rows:
                    sys.stdout.write(f"{self._comma}\n  {msgspec.json.encode(row).decode()}")
                    self._comma = ","
            case "yaml":  # JSON is YAML, and a mapping on one line of it is quick to read and to write
                for row in rows:
                    sys.stdout.write(f"\n- {msgspec.json.encode(row).decode()}")
            case "name":
                for row in rows:
                    sys.stdout.write(f"{row.owner}\n")
            case _:
                for row in rows:
                    drain = "-" if row.drain_to is None else row.drain_to or RELEASE
                    owner, desired = row.owner or "-", row.desired_shard or "-"
                    self._line(_shown(row), owner, desired, drain, row.hash, row.token)

    def end(self) -> None:
        if self._form == "json":
            sys.stdout.write("\n]}\n")
        elif self._form == "yaml":
            sys.stdout.write(" []\n" if self._is_empty else "\n")

    def _line(self, *cells: str) -> None:
        """Columns of fixed width: the widest cell is not known before the last row."""
        widths = (44, 24, 24, 24, 16, 16) if self._form == "wide" else (44, 24, 24, 0)
        shown = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        print_line("  ".join(shown).rstrip())


def _shown(row: Row) -> str:
    place = f"{row.namespace}/" if row.namespace else ""
    return f"{row.resource}/{place}{row.name}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.resource,
        row.namespace,
        row.name,
        row.ring,
        row.owner,
        "" if row.drain_to is None else row.drain_to or RELEASE,
        row.desired_shard,
        row.desired_member,
        "true" if row.is_placed else "false",
        row.owner_state,
        row.key,
        row.hash,
        row.token,
    )


# ---- every object ---------------------------------------------------------------------------------------------


def run_everywhere(
    where: Connection, *, namespace: str | None, ring: str | None, controlled: bool, form: str
) -> int:
    """`where --all`: every object that rings distribute; those that follow them as well if *controlled*."""
    writer = Writer(form)

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


def run_file(where: Connection, source: str, *, namespace: str | None, ring: str | None, form: str) -> int:
    """`where -f FILE`: the objects that *source* names. 2 if some of it cannot be used; the rest is answered."""
    targets = read_targets(source)
    writer, problems = Writer(form), [each for each in targets if isinstance(each, Broken)]
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
