"""`ringleader status`: rings with their members, shares beside the ideal, what is on its way and how long it will take.

Owns the one-time look; how it is laid out is `layout`'s, looking again and again `watch`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.clock import SystemClock
from ringleader.cluster.following import Following
from ringleader.cluster.handoffs import HandoffRow, handoff_lines, oldest_first, read_handoffs
from ringleader.cluster.picture import RingPicture
from ringleader.cluster.reported import NotReported, Reports
from ringleader.cluster.ring import named_ring
from ringleader.cluster.snapshot import ClusterReader, read_rings
from ringleader.inspect.status.layout import Screen, member_table, ring_table, status_lines
from ringleader.inspect.status.pace import Paces
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, print_document, print_line
from ringleader.progress import progress

if TYPE_CHECKING:
    from kubeio.rest.client import Client

__all__ = ["member_table", "ring_table", "run_status"]

APART_S: Final = 2.0
"""Between the list and the look that an estimate takes, at least."""
TOLD_EVERY_S: Final = 0.2


def run_status(
    where: ConnectionOptions,
    *,
    ring: str | None,
    form: Form | None,
    is_watching: bool = False,
    is_counting: bool = False,
    interval_s: float = 2.0,
) -> int:
    """The command. With *is_counting* objects are listed, else they are what the replicas report."""
    if is_watching:
        from ringleader.inspect.status.watch import run_watch

        return run_watch(where, ring=ring, form=form, is_counting=is_counting, interval_s=interval_s)
    if form is Form.NAME:
        for name in connected(where, lambda client, _: _names(client, ring, timeout_s=where.timeout_s)):
            print_line(f"controllerring.ringleader.dev/{name}")
        return 0
    looks = connected(
        where, lambda client, _: look(client, ring, is_counting=is_counting, timeout_s=where.timeout_s)
    )
    match form:
        case Form.JSON | Form.YAML:
            print_document({"rings": looks}, form=form)
        case _:
            for line in status_lines(
                looks, Screen.of_stdout(), is_wide=form is Form.WIDE, now=SystemClock().wall()
            ):
                print_line(line)
    return 0


def run_handoffs(where: ConnectionOptions, *, ring: str | None, limit: int, form: Form | None) -> int:
    """`status --handoffs`: the handoffs in flight, the oldest first."""

    async def read(client: Client, _: object) -> list[HandoffRow]:
        from kubeio.rest.discovery import Discovery

        reader, discovery = ClusterReader(client, timeout_s=where.timeout_s), Discovery(client)
        snapshot = (await reader.snapshot(ring, reads_namespaces=False)).require("rings", "leases")
        found = [
            row for state in snapshot.rings for row in await read_handoffs(reader, discovery, snapshot, state)
        ]
        return oldest_first(found)

    found = connected(where, read)
    match form:
        case Form.JSON | Form.YAML:
            print_document({"handoffs": found}, form=form)
        case Form.NAME:
            for each in found:
                print_line(each.object)
        case _:
            for line in handoff_lines(found, limit=limit, is_wide=form is Form.WIDE):
                print_line(line)
    return 0


async def _names(client: Client, name: str | None, *, timeout_s: float) -> list[str]:
    rings = await read_rings(client, timeout_s=timeout_s)
    return [ring.name for ring in rings] if name is None else [named_ring(rings, name).name]


async def look(
    client: Client, name: str | None, *, is_counting: bool, timeout_s: float
) -> Sequence[RingPicture]:
    """Rings as they are reported, or as a list shows them: with *is_counting*, or if a replica does not report."""
    if not is_counting:
        with suppress(NotReported):
            return await Reports(client, name, timeout_s=timeout_s).look()
    return await look_with_pace(client, name, timeout_s=timeout_s)


async def look_with_pace(client: Client, name: str | None, *, timeout_s: float) -> Sequence[RingPicture]:
    """One look; with a pace, if something is still on its way: from the list to what the watch tells a moment later.

    Raises: InputError for an unknown ring, KubeError.
    """
    from kubeio.rest.discovery import Discovery

    clock, paces = SystemClock(), Paces()
    async with Following(client, Discovery(client), name, timeout_s=timeout_s) as following:
        with progress("objects", None) as done:
            telling = asyncio.create_task(_tell(following, done), name="progress")
            try:
                found = await following.look()
            finally:
                telling.cancel()
        as_of = following.as_of
        begun = [paces.begin(*following.listed[name]) for name in as_of]
        if begun and min(as_of.values()) - min(begun) < APART_S:
            await asyncio.sleep(max(0.0, min(begun) + APART_S - clock.now()))
            found = await following.look(up_to_date=True)
        return [_dated(following, paces, shown, now=clock.now()) for shown in found]


def _dated(following: Following, paces: Paces, shown: RingPicture, *, now: float) -> RingPicture:
    """*shown* with its age, and with its pace if it is known of when it is."""
    if shown.name not in following.listed:
        return paces.paced(shown, now)
    at = following.as_of.get(shown.name, following.listed[shown.name][1])
    return paces.paced(msgspec.structs.replace(shown, age_seconds=round(now - at, 1)), at)


async def _tell(following: Following, done: Callable[[int], None]) -> None:
    """Tell how many objects were read, until cancelled."""
    told = 0
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        read = following.watches.objects
        done(read - told)
        told = read
