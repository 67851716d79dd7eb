"""`ringleader dashboard`: composes the service, the connection to the sharder that leads, and the answers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kubeio.errors import KubeError, first_error
from kubeio.program.http_server import parse_bind
from ringleader.cluster.debug_endpoint import check_url
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.models import ObjectKey
    from kubeio.rest.client import Client
    from ring.ring import HashRing
    from ringleader.dashboard.find import FoundObject
    from ringleader.dashboard.questions import Questions

FLAG: Final = "--bind"


def run_dashboard(
    where: ConnectionOptions, *, ring: str | None, bind: str, endpoint: str | None, is_opened: bool
) -> int:
    """The command; ends with Ctrl-C or SIGTERM. Raises InputError, FailedAt."""
    address = parse_bind(FLAG, bind)
    if endpoint is not None:
        check_url(endpoint)

    async def serve(client: Client, _: Cluster) -> None:
        # ended in good order by SIGTERM, too: kubectl must not stay behind. By SIGTERM itself: a shell lets its
        # background jobs ignore SIGINT.
        if (serving := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        try:
            await _serve(client, where, address, ring=ring, endpoint=endpoint, is_opened=is_opened)
        except ExceptionGroup as group:
            error = first_error(group)
            if isinstance(error, KubeError):
                raise error from None
            raise

    try:
        connected(where, serve)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    return 0


async def _serve(
    client: Client,
    where: ConnectionOptions,
    address: tuple[str, int],
    *,
    ring: str | None,
    endpoint: str | None,
    is_opened: bool,
) -> None:
    from kubeio.program.host import Host
    from kubeio.rest.reviews import Reviews
    from ringleader.cluster.reader import read_rings
    from ringleader.cluster.ring import named_ring
    from ringleader.dashboard.connection import LeaderConnection
    from ringleader.dashboard.leader import choose_way
    from ringleader.dashboard.relay import Relay
    from ringleader.dashboard.service import Dashboard

    if ring is not None:
        named_ring(await read_rings(client, timeout_s=where.timeout_s), ring)
    host, (bind, port) = Host(), address
    leader = LeaderConnection(choose_way(where, client, endpoint=endpoint), clock=host.clock, rng=host.rng)
    pages = {"/events": Relay(leader).open, **questions_to(client, timeout_s=where.timeout_s).pages()}
    reviews = Reviews(client, timeout_s=where.timeout_s)
    async with (
        Dashboard(pages, reviews, bind=bind, port=port, clock=host.clock) as dashboard,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(leader.run(), name="leader")
        await leader.tried.wait()
        url = f"{dashboard.url}#{quote(ring)}" if ring is not None else dashboard.url
        print_line(url)
        if is_opened:
            import webbrowser

            webbrowser.open(url)


def questions_to(client: Client, *, timeout_s: float) -> Questions:
    """Answers from the cluster, with the rights of *client*."""
    from ringleader.cluster.reader import ClusterReader
    from ringleader.dashboard.find import find_object
    from ringleader.dashboard.questions import Questions

    async def find(ring: str, resource: str, key: ObjectKey) -> FoundObject:
        return await find_object(client, ring, resource, key, timeout_s=timeout_s)

    async def rings(name: str) -> Callable[[], Mapping[str, HashRing]]:
        reader = ClusterReader(client, timeout_s=timeout_s)
        snapshot = (await reader.snapshot(name, reads_namespaces=False)).require("rings", "leases")
        return lambda: snapshot.of(name).hash_rings.by_main

    return Questions(find, rings)
