"""The sharder's stream, passed on to viewers: one stream of the sharder for each of them.

A viewer whose sharder is lost gets the reason every two seconds, until a sharder answers: first a snapshot again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kubeio.errors import ApiError, KubeError
from kubeio.program.failures import failure
from kubeio.program.http_server import Reply, ServerConnection, Stream
from kubeio.program.pages import NO_PAGE
from sharder.live.frames import event
from sharder.live.stream import EVENT_STREAM, HEARTBEAT_S

if TYPE_CHECKING:
    from ringleader.dashboard.connection import LeaderConnection
    from ringleader.dashboard.endpoint import SharderEndpoint

_DRAIN_S: Final = 0.05
"""Between two looks at a viewer that does not read."""


class Relay:
    """Streams of the sharder that leads, over *leader*."""

    def __init__(self, leader: LeaderConnection) -> None:
        self._leader = leader

    async def open(self, below: list[str]) -> Reply | Stream:
        """A stream for one more viewer."""
        return NO_PAGE if below else Stream(EVENT_STREAM, self._serve)

    async def _serve(self, viewer: ServerConnection) -> None:
        """Send to one viewer until cancelled."""
        while True:
            endpoint = await self._leader.wait(timeout_s=HEARTBEAT_S)
            if endpoint is None:
                viewer.push(_disconnected(self._leader.problem))
            else:
                viewer.push(_disconnected(await self._relay(endpoint, viewer)))

    async def _relay(self, endpoint: SharderEndpoint, viewer: ServerConnection) -> str:
        """Send what the sharder sends; returns why it ended."""

        async def deliver(block: bytes) -> None:
            self._leader.heard()
            viewer.push(block)
            while viewer.is_backed_up:  # noqa: ASYNC110 - a connection's state; the sharder then holds events back
                await asyncio.sleep(_DRAIN_S)

        try:
            await endpoint.relay(deliver)
        except ApiError as error:  # this stream is refused; those of other viewers go on
            await asyncio.sleep(HEARTBEAT_S)
            return f"{endpoint.value}: {error.message.strip()}"
        except KubeError as error:
            endpoint.lose(failure(error).message)
        return endpoint.reason


def _disconnected(problem: str) -> bytes:
    return event("disconnected", {"problem": problem})
