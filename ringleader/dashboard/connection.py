"""The connection to the sharder that leads, one for all viewers: opened, and opened anew when it is lost.

A sharder that has not been heard of lately counts as lost: its address may be another pod's by now, to which no token
must go. Owns the pauses between attempts and the reason why there is no connection. The ways are those of `leader`.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubeio.errors import KubeError
from kubeio.program.failures import failure
from ringleader.dashboard.endpoint import SILENCE_S
from ringleader.dashboard.leader import NoLeader

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from ringleader.dashboard.endpoint import SharderEndpoint
    from ringleader.dashboard.leader import Way

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 4.0


class LeaderConnection:
    """`run` keeps the connection until cancelled; `wait` gives it to viewers. `problem`: why there is none."""

    def __init__(self, way: Way, *, clock: Clock, rng: random.Random) -> None:
        self.problem = "the sharder that leads is looked for"
        self.tried: Final = asyncio.Event()
        """Set after the first attempt."""
        self._way = way
        self._clock = clock
        self._rng = rng
        self._heard_at = clock.now()
        self._endpoint: SharderEndpoint | None = None
        self._opened = asyncio.Event()

    def heard(self) -> None:
        """The sharder sent something."""
        self._heard_at = self._clock.now()

    async def wait(self, *, timeout_s: float) -> SharderEndpoint | None:
        """The sharder that leads; None if there is no connection within *timeout_s*."""
        endpoint = self._endpoint
        if endpoint is not None and self._clock.now() - self._heard_at > SILENCE_S:
            endpoint.lose("the sharder that leads is looked for again")
        if endpoint is not None and endpoint.lost.is_set():
            self._close()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
        return self._endpoint

    async def run(self) -> None:
        """Raises the error of the first attempt, but waits for a leader if there is none yet."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with self._way() as endpoint:
                    await endpoint.check()
                    self.heard()
                    pause_s = FIRST_PAUSE_S
                    await self._keep(endpoint)
            except KubeError as error:
                if not self.tried.is_set() and not isinstance(error, NoLeader):
                    raise
                self.problem = failure(error).message
            self.tried.set()
            await asyncio.sleep(pause_s * self._rng.uniform(0.8, 1.2))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _keep(self, endpoint: SharderEndpoint) -> None:
        self._endpoint = endpoint
        self._opened.set()
        self.tried.set()
        try:
            await endpoint.lost.wait()
        finally:
            self._close()

    def _close(self) -> None:
        if self._endpoint is not None:
            self.problem = self._endpoint.reason
        self._endpoint = None
        self._opened.clear()
