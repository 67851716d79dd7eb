"""The controller as the runs see it: a child behind the relay, that finds no lock of its predecessor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from proxy.child import Child, start_child
from proxy.locks import EchoLocks
from proxy.relay import Relay


class BehindRelay:
    """*command* as a child with *environment*; `proxy.runs` starts and stops it."""

    def __init__(
        self,
        command: Sequence[str],
        relay: Relay,
        locks: EchoLocks,
        *,
        environment: Mapping[str, str],
        stop_within_s: float,
    ) -> None:
        self._command: Final = command
        self._relay: Final = relay
        self._locks: Final = locks
        self._environment: Final = environment
        self._stop_within_s: Final = stop_within_s
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

    async def wait(self) -> int:
        """Its exit code."""
        if self._child is None:
            raise RuntimeError("the controller was not started")
        return await self._child.wait()
