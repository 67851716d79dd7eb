"""`ringleader dashboard`: the live page from a laptop, fed by what a kubeconfig may read. Reads only.

Owns the loop that reads; the page and its service are `sharder.page`'s, what a reading means is `shown`'s. What cannot
be read for a while stays shown, with its age.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kubeio.clock import SystemClock
from kubeio.errors import KubeError
from kubeio.program.failures import failure
from kubeio.program.http_server import parse_bind
from ringleader.cluster.following import Watches
from ringleader.cluster.ring import named_ring
from ringleader.cluster.snapshot import read_rings
from ringleader.inspect.page.shown import ShownRing
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from sharder.page.board import Board

FLAG: Final = "--bind"
PERIOD_S: Final = 1.0


def run_page(where: ConnectionOptions, *, ring: str | None, bind: str, is_opened: bool) -> int:
    """The command; ends with Ctrl-C."""
    host, port = parse_bind(FLAG, bind)

    async def serve(client: Client, cluster: Cluster) -> None:
        await _serve(client, cluster, host=host, port=port, ring=ring, where=where, is_opened=is_opened)

    try:
        connected(where, serve)
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(
    client: Client,
    cluster: Cluster,
    *,
    host: str,
    port: int,
    ring: str | None,
    where: ConnectionOptions,
    is_opened: bool,
) -> None:
    from kubeio.rest.discovery import Discovery
    from kubeio.rest.reviews import Reviews
    from sharder.page.board import Board
    from sharder.page.service import LivePage

    rings = await read_rings(client, timeout_s=where.timeout_s)
    if ring is not None:
        named_ring(rings, ring)
    clock = SystemClock()
    board = Board(title=cluster.server, clock=clock)
    reader = Reader(client, Discovery(client), board, only=ring, timeout_s=where.timeout_s)
    reviews = Reviews(client, timeout_s=where.timeout_s)
    async with reader, LivePage(board, reviews, bind=host, port=port, flag=FLAG, clock=clock) as page:
        await reader.look()
        print_line(page.url)
        if is_opened:
            import webbrowser

            webbrowser.open(page.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(page.run(), name="live page")
            tasks.create_task(reader.run(), name="reader")


class Reader:
    """Reads rings and Leases every second and watches objects, until `async with` ends; shows them on *board*."""

    def __init__(
        self, client: Client, discovery: Discovery, board: Board, *, only: str | None, timeout_s: float
    ) -> None:
        self._client = client
        self._watches = Watches(client, discovery)
        self._board = board
        self._only = only
        self._timeout_s = timeout_s
        self._shown: dict[str, ShownRing] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._watches.close()

    async def run(self) -> None:
        """Look every second, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Read once; what cannot be read is told on the page."""
        try:
            found = await read_rings(self._client, timeout_s=self._timeout_s)
        except KubeError as error:
            for shown in self._shown.values():
                shown.problem = failure(error, server=self._client.cluster.server).message
            return
        for ring in found:
            if self._only in (None, ring.name):
                if ring.name not in self._shown:
                    self._shown[ring.name] = ShownRing(
                        self._client,
                        self._watches,
                        ring,
                        self._board.history(ring.name),
                        now=self._board.at,
                        timeout_s=self._timeout_s,
                    )
                    self._board.show(ring.name, self._shown[ring.name])
                await self._look_at(self._shown[ring.name].take(ring))
        for name in self._shown.keys() - {ring.name for ring in found}:
            del self._shown[name]
            self._board.forget(name)
        await self._watches.keep(self._shown)

    async def _look_at(self, ring: ShownRing) -> None:
        try:
            await ring.look()
        except KubeError as error:
            ring.problem = failure(error, server=self._client.cluster.server).message
        else:
            ring.problem = ""
