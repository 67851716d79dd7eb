"""`ringleader status`: rings with their members, shares beside the ideal, what is on its way and how long it will take.

Owns the one-time look; how it is laid out is `layout`'s, looking again and again `watch`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.clock import SystemClock
from ringleader.inspect.cluster.picture import RingPicture
from ringleader.inspect.cluster.reading import named_ring, read_picture, read_rings
from ringleader.inspect.cluster.sharders import read_sharders
from ringleader.inspect.status.layout import Screen, member_table, ring_table, status_lines
from ringleader.inspect.status.pace import Paces
from ringleader.options import Connection, connected
from ringleader.output import Form, print_document, print_line

if TYPE_CHECKING:
    from kubeio.rest.client import Client

__all__ = ["member_table", "ring_table", "run_status"]

APART_S: Final = 1.0
"""Between the two looks that an estimate takes."""


def run_status(
    where: Connection,
    *,
    ring: str | None,
    form: Form | None,
    is_watching: bool = False,
    interval_s: float = 2.0,
) -> int:
    """The command."""
    if is_watching:
        from ringleader.inspect.status.watch import run_watch

        return run_watch(where, ring=ring, form=form, interval_s=interval_s)
    wants_pace = form is not Form.NAME
    looks = connected(
        where,
        lambda client, _: look_with_pace(client, ring, timeout_s=where.timeout_s, wants_pace=wants_pace),
    )
    match form:
        case Form.JSON | Form.YAML:
            print_document({"rings": looks}, form=form)
        case Form.NAME:
            for shown in looks:
                print_line(f"controllerring.ringleader.dev/{shown.name}")
        case _:
            for line in status_lines(
                looks, Screen.of_stdout(), is_wide=form is Form.WIDE, now=SystemClock().wall()
            ):
                print_line(line)
    return 0


async def look(client: Client, name: str | None, *, timeout_s: float) -> list[RingPicture]:
    """The rings of the cluster, or the one called *name*, as they are now. Raises InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    rings = await read_rings(client, timeout_s=timeout_s)
    wanted = rings if name is None else [named_ring(rings, name)]
    discovery = Discovery(client)
    sharders = await read_sharders(client, now=SystemClock().wall(), timeout_s=timeout_s)
    found = [await read_picture(client, discovery, ring, timeout_s=timeout_s) for ring in wanted]
    return [msgspec.structs.replace(shown, warning=sharders.warning) for shown in found]


async def look_with_pace(
    client: Client, name: str | None, *, timeout_s: float, wants_pace: bool
) -> Sequence[RingPicture]:
    """One look; a second one, a moment later, if something is still on its way and its pace is wanted."""
    import asyncio

    clock, paces = SystemClock(), Paces()
    at = clock.now()
    found = [paces.paced(shown, at) for shown in await look(client, name, timeout_s=timeout_s)]
    if not wants_pace or not any(shown.to_do for shown in found):
        return found
    await asyncio.sleep(APART_S)
    at = clock.now()
    return [paces.paced(shown, at) for shown in await look(client, name, timeout_s=timeout_s)]
