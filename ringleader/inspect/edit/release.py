"""`ringleader release RING`: give a ring up, and say when it is (protocol, section 7).

A ring is given up by deleting it: its finalizer keeps it while a sharder has every owner let go of its objects, and
until no replica holds a Lease. Owns the question before and the waiting after; what lies between is the sharder's.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kubeio.clock import SystemClock
from kubeio.errors import InputError, NotFound
from kubeio.models import HasMeta
from kubeio.program.failures import FAILED
from kubeio.resource import CONTROLLER_RINGS
from ringleader.inspect.cluster.reading import named_ring, read_ahead, read_lives, read_rings
from ringleader.inspect.cluster.sharders import read_sharders
from ringleader.options import Connection, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.inspect.cluster.rings import Ring

FINALIZER: Final = "ringleader.dev/ring"
LOOK_S: Final = 1.0
REST: Final = 2.0
Advance = Callable[[int], None]


def run_release(where: Connection, name: str, *, is_sure: bool, waits: bool, patience_s: float | None) -> int:
    """The command; `FAILED` if the ring is not gone after *patience_s*."""

    async def work(client: Client, _: object) -> int:
        ring = named_ring(await read_rings(client, timeout_s=where.timeout_s), name)
        labelled = await count_labelled(client, ring, timeout_s=where.timeout_s)
        check_finalizer(ring, labelled.total())
        if not is_sure and not sys.stdin.isatty():
            raise InputError("--yes", False, "is needed: there is no terminal to ask on", "add --yes")
        if warning := await _warning(client, timeout_s=where.timeout_s):
            sys.stderr.write(f"warning: {warning}\n")
        if not is_sure:
            ask(f"{consequence(ring, labelled)} Go on?")
        if ring.metadata.deletion_timestamp is None:
            await client.delete(CONTROLLER_RINGS, name, uid=ring.metadata.uid, timeout_s=where.timeout_s)
        if not waits:
            print_line(f"ring {name} is being given up; `ringleader status {name}` shows how far it is")
            return 0
        try:
            async with asyncio.timeout(patience_s):
                await _until_gone(client, ring, labelled.total(), timeout_s=where.timeout_s)
        except TimeoutError:
            return await _not_gone(client, ring, patience_s or 0, timeout_s=where.timeout_s)
        print_line(
            f"ring {name} is released: no object carries its labels, and no replica holds a Lease of it"
        )
        return 0

    return connected(where, work)


def check_finalizer(ring: Ring, labelled: int) -> None:
    """Raises InputError if nobody would take the labels off after the ring's deletion."""
    if FINALIZER not in ring.metadata.finalizers and labelled:
        raise InputError(
            "RING",
            ring.name,
            f"has no finalizer, so its deletion would leave the labels of {labelled:,} objects",
            "start a sharder that works it first (docs/operate.md)",
        )


def consequence(ring: Ring, labelled: Counter[str]) -> str:
    """What the command is about to do, for the person who is asked."""
    owners = sum(1 for shard in labelled if shard)
    former = " Then the former controller's Lease is given back." if ring.spec.activation else ""
    return (
        f"{labelled.total():,} objects of ring {ring.name} are given up by {owners} replicas and worked on by nobody;"
        f" the ring is deleted, and its replicas end. The objects stay.{former}"
    )


async def _warning(client: Client, *, timeout_s: float) -> str:
    found = (await read_sharders(client, now=SystemClock().wall(), timeout_s=timeout_s)).warning
    return f"{found}; nothing happens until one does" if found else ""


def ask(question: str) -> None:
    """Raises Abort unless the person says yes."""
    import typer

    typer.confirm(question, abort=True, err=True)


async def count_labelled(client: Client, ring: Ring, *, timeout_s: float) -> Counter[str]:
    """Objects that carry the ring's label, by shard, controlled ones too. Raises KubeError."""
    from kubeio.rest.discovery import Discovery
    from ringleader.inspect.cluster.keys import ring_kinds

    found: Counter[str] = Counter()
    kinds = await ring_kinds(Discovery(client), ring)
    for resource in kinds.resources:
        pages = read_ahead(client, resource, label_selector=ring.keys.shard, timeout_s=timeout_s)
        async for page in pages:
            found.update(each.meta.labels[ring.keys.shard] for each in page.objects)
    return found


async def _until_gone(client: Client, ring: Ring, total: int, *, timeout_s: float) -> None:
    """Return when the ring is gone."""
    with _progress(total) as left:
        clock = SystemClock()
        rest_until = 0.0
        while await _exists(client, ring, timeout_s=timeout_s):
            if (began := clock.now()) >= rest_until:
                left((await count_labelled(client, ring, timeout_s=timeout_s)).total())
                rest_until = clock.now() + REST * (clock.now() - began)
            await asyncio.sleep(LOOK_S)
        left(0)


async def _exists(client: Client, ring: Ring, *, timeout_s: float) -> bool:
    try:
        found = await client.get(
            CONTROLLER_RINGS, ring.name, type=HasMeta, metadata_only=True, timeout_s=timeout_s
        )
    except NotFound:
        return False
    return found.metadata.uid == ring.metadata.uid


async def _not_gone(client: Client, ring: Ring, waited_s: float, *, timeout_s: float) -> int:
    """Say what the ring still waits for."""
    labelled = await count_labelled(client, ring, timeout_s=timeout_s)
    held = sorted(life.shard for life in await read_lives(client, ring) if life.is_live)
    waits = [f"{count:,} objects of {shard}" for shard, count in labelled.most_common(3)]
    waits += [f"the Lease of {shard}" for shard in held[:3]] if not labelled else []
    told = ", ".join(waits) or "a sharder"
    sys.stderr.write(
        f"error: ring {ring.name} is not released after {waited_s:g} s: it waits for {told};"
        f" it goes on by itself while a sharder runs\n"
    )
    return FAILED


@contextmanager
def _progress(total: int) -> Iterator[Advance]:
    """Tells how many objects are left, on stderr: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        last: int | None = None

        def tell(left: int) -> None:
            nonlocal last
            if left != last:
                sys.stderr.write(f"{left:,} objects to give up\n")
            last = left

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("given up", total=max(total, 1))
        yield lambda left: shown.update(task, completed=max(total - left, 0))
