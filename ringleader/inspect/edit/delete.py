"""`ringleader delete RING`: give a ring up, and say when it is (protocol, section 7).

A ring is given up by deleting it: its finalizer keeps it while a sharder has every owner let go of its objects, and
until no replica holds a Lease. Owns the question before and the waiting after; what lies between is the sharder's.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kubeio.clock import SystemClock
from kubeio.errors import Forbidden, InputError, KubeError, NotFound, Unauthorized
from kubeio.program.failures import FAILED, failure
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.cluster.causes import why_no_leader
from ringleader.cluster.objects import object_pages, ring_kinds
from ringleader.cluster.reader import ClusterReader, read_rings, read_shards
from ringleader.cluster.ring import Ring, decode_ring, named_ring
from ringleader.inspect.edit.release_progress import ReleaseProgress, showing_progress
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line
from ringleader.progress import progress

if TYPE_CHECKING:
    from kubeio.rest.client import Client

FINALIZER: Final = "ringleader.dev/ring"
LOOK_S: Final = 1.0


@dataclass(slots=True)
class Labelled:
    """Objects that carry a ring's label: by shard, and how many of all follow another one."""

    shards: Counter[str] = field(default_factory=Counter)
    controlled: int = 0

    @property
    def own(self) -> int:
        """How many are not given up with what controls them: those that the ring's status counts."""
        return self.shards.total() - self.controlled


def run_delete(
    where: ConnectionOptions, name: str, *, is_sure: bool, waits: bool, patience_s: float | None
) -> int:
    """The command; `FAILED` if the ring is not gone after *patience_s*."""
    is_deleted = False

    async def work(client: Client, _: object) -> int:
        nonlocal is_deleted
        ring = named_ring(await read_rings(client, timeout_s=where.timeout_s), name)
        if not is_sure and not sys.stdin.isatty():
            raise InputError("--yes", False, "is needed: there is no terminal to ask on", "add --yes")
        labelled = await count_labelled(client, ring, timeout_s=where.timeout_s)
        check_finalizer(ring, labelled.shards.total())
        if warning := await _warning(client, timeout_s=where.timeout_s):
            sys.stderr.write(f"warning: {warning}\n")
        if not is_sure:
            ask(f"{consequence(ring, labelled)} Go on?")
        if not ring.is_deleted:
            await client.delete(CONTROLLER_RINGS, name, uid=ring.metadata.uid, timeout_s=where.timeout_s)
        is_deleted = True
        if not waits:
            print_line(f"ring {name} is being given up; `ringleader status {name}` shows how far it is")
            return 0
        try:
            async with asyncio.timeout(patience_s):
                await _until_gone(client, ring, labelled.own, timeout_s=where.timeout_s)
        except TimeoutError:
            return await _not_gone(client, ring, patience_s or 0, timeout_s=where.timeout_s)
        print_line(
            f"ring {name} is released: no object carries its labels, and no replica holds a Lease of it"
        )
        return 0

    try:
        return connected(where, work)
    except KeyboardInterrupt:
        if is_deleted:
            sys.stderr.write(
                f"note: ring {name} is being given up all the same; ringleader status {name} shows how far\n"
            )
        raise


def check_finalizer(ring: Ring, labelled: int) -> None:
    """Raises InputError if no finalizer would have the labels taken off after the ring's deletion."""
    if FINALIZER not in ring.metadata.finalizers and labelled:
        raise InputError(
            "RING",
            ring.name,
            f"has no finalizer, so its deletion would leave the labels of {labelled:,} objects",
            "start a sharder that works it first (docs/operate.md)",
        )


def consequence(ring: Ring, labelled: Labelled) -> str:
    """What the command is about to do, for the person who is asked."""
    owners = sum(1 for shard in labelled.shards if shard)
    more = f", and {labelled.controlled:,} that they control," if labelled.controlled else ""
    former = " Then the former controller's Lease is given back." if ring.spec.activation else ""
    return (
        f"{labelled.own:,} objects of ring {ring.name}{more} are given up by {owners} replicas and no longer"
        f" reconciled; the ring is deleted, and its replicas end. The objects stay.{former}"
    )


async def _warning(client: Client, *, timeout_s: float) -> str:
    no_leader = why_no_leader(await ClusterReader(client, timeout_s=timeout_s).leadership())
    return f"{no_leader.text}; nothing happens until one does" if no_leader else ""


def ask(question: str) -> None:
    """Raises Abort unless the person says yes."""
    import typer

    typer.confirm(question, abort=True, err=True)


async def count_labelled(client: Client, ring: Ring, *, timeout_s: float) -> Labelled:
    """Objects that carry the ring's label; says first that it counts, for that may take minutes. Raises KubeError."""
    from kubeio.rest.discovery import Discovery
    from sharder.planning.keys import Controlled

    if not sys.stderr.isatty():
        sys.stderr.write(f"counting the objects of ring {ring.name}\n")
    found = Labelled()
    kinds = await ring_kinds(Discovery(client), ring)
    with progress(f"objects of ring {ring.name}") as advance:
        async for resource, objects in object_pages(
            client, kinds.resources, label_selector=ring.keys.shard, advance=advance, timeout_s=timeout_s
        ):
            metas = [each.meta for each in objects]
            found.shards.update(meta.labels[ring.keys.shard] for meta in metas)
            found.controlled += sum(isinstance(kinds.role(resource, meta), Controlled) for meta in metas)
    return found


async def _until_gone(client: Client, ring: Ring, total: int, *, timeout_s: float) -> None:
    """Return when the ring is gone. Reads its status alone: to count the objects again would only slow it down.

    A server that does not answer for a while is reported once: the release goes on without us. Raises: Forbidden,
    Unauthorized.
    """
    clock = SystemClock()
    release = ReleaseProgress(total, ring.status.get("released"), began_at=clock.now())
    is_silent = False
    with showing_progress() as show:
        while True:
            try:
                found = await _read(client, ring, timeout_s=timeout_s)
            except (Forbidden, Unauthorized):
                raise
            except KubeError as error:
                if not is_silent:
                    message = failure(error, server=client.cluster.server).message
                    sys.stderr.write(f"warning: {message}; the release goes on, and is looked at again\n")
                is_silent = True
            else:
                if found is None:
                    return
                is_silent = False
                release.look(clock.now(), found.status.get("released"))
                show(release, clock.now())
            await asyncio.sleep(LOOK_S)


async def _read(client: Client, ring: Ring, *, timeout_s: float) -> Ring | None:
    """*ring* as it is now; None if it is gone, though another one may have its name."""
    try:
        raw = await client.get(CONTROLLER_RINGS, ring.name, type=bytes, timeout_s=timeout_s)
    except NotFound:
        return None
    found = decode_ring(raw)
    return found if found.metadata.uid == ring.metadata.uid else None


async def _not_gone(client: Client, ring: Ring, waited_s: float, *, timeout_s: float) -> int:
    """Say what the ring still waits for."""
    labelled = (await count_labelled(client, ring, timeout_s=timeout_s)).shards
    held = sorted(shard.name for shard in await read_shards(client, ring) if shard.is_live)
    waits = [f"{count:,} objects of {shard}" for shard, count in labelled.most_common(3)]
    waits += [f"the Lease of {shard}" for shard in held[:3]] if not labelled else []
    waited_for = ", ".join(waits) or "a sharder"
    sys.stderr.write(
        f"error: ring {ring.name} is not released after {waited_s:g} s: it waits for {waited_for};"
        f" it goes on by itself while a sharder runs\n"
    )
    return FAILED
