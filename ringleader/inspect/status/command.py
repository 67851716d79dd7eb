"""`ringleader status`: rings with their members, shares beside the ideal, what is on its way and how long it will take.

Owns the single look; `layout` has its words, `watch` looks again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeio.clock import SystemClock
from ringleader.cluster.handoffs import HandoffRow, handoff_lines, oldest_first, read_handoffs
from ringleader.cluster.reader import ClusterReader, read_rings
from ringleader.cluster.ring import named_ring
from ringleader.inspect.status.layout import Screen, status_lines
from ringleader.inspect.status.statuses import count_statuses, read_statuses
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, print_document, print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from ringleader.cluster.ring_status import RingStatus


def run_status(where: ConnectionOptions, *, ring: str | None, form: Form | None, is_counting: bool) -> int:
    """The command. With *is_counting* objects are listed, else their numbers are what the sharder reports."""
    if form is Form.NAME:
        for name in connected(where, lambda client, _: _names(client, ring, timeout_s=where.timeout_s)):
            print_line(f"controllerring.ringleader.dev/{name}")
        return 0

    async def read(client: Client, _: Cluster) -> list[RingStatus]:
        reader = ClusterReader(client, timeout_s=where.timeout_s)
        return await (count_statuses if is_counting else read_statuses)(reader, ring)

    found = connected(where, read)
    match form:
        case Form.JSON | Form.YAML:
            print_document({"rings": found}, form=form)
        case _:
            is_wide, now = form is Form.WIDE, SystemClock().wall()
            for line in status_lines(found, Screen.of_stdout(), is_wide=is_wide, now=now):
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
