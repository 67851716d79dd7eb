"""The controller as the runs see it: a child behind the relay, that finds no lock of its predecessor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from proxy.child import Child, start_child
from proxy.health import ControllerProbe
from proxy.locks import EchoLocks
from proxy.relay import Relay

log = structlog.get_logger("proxy")


class BehindRelay:
    """*command* as a child with *environment*; `proxy.runs` starts and stops it.

    *liveness*: if it says that the controller hangs, it is ended, and started again like one that ended by itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        relay: Relay,
        locks: EchoLocks,
        *,
        environment: Mapping[str, str],
        stop_within_s: float,
        liveness: ControllerProbe | None = None,
    ) -> None:
        self._command: Final = command
        self._relay: Final = relay
        self._locks: Final = locks
        self._environment: Final = environment
        self._stop_within_s: Final = stop_within_s
        self._liveness: Final = liveness
        self._child: Child | None = None

    async def start(self) -> None:
        """Raises: OSError if the command cannot be started."""
        self._locks.forget()
        self._child = await start_child(self._command, environment=self._environment)

    async def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL of its group. Answers to its writes are read on. Raises: StuckGroup."""
        if self._child is not None:
            await self._child.end(grace_s=self._stop_within_s)
            self._relay.hang_up()
            self._child = None

    def kill(self) -> None:
        """SIGKILL of its group, while `stop` waits for its end."""
        if self._child is not None:
            self._child.kill()

    async def wait(self) -> int:
        """Its exit code, once it has ended, or hung and was ended. Raises: StuckGroup."""
        child = self._child
        if child is None:
            raise RuntimeError("the controller was not started")
        if self._liveness is None:
            return await child.wait()
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(child.wait(), name="controller")
            hung = tasks.create_task(self._liveness.wait_hung(), name="liveness of the controller")
            await asyncio.wait({ended, hung}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                log.error("controller hangs, and is ended", problem=hung.result())
                await child.end(grace_s=self._stop_within_s)
            hung.cancel()
        return ended.result()
