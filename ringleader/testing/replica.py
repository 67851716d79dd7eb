"""One place of a fleet, a shard's or a sharder's: the process that fills it now, and those that did before.

Owns starting, ending and starting again, as a kubelet would do it for a StatefulSet's pod: a process that ends
by itself is started anew after a moment, under the same name. What the processes do is not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeio.clock import Clock
from ringleader.testing.process import Process, start_process


class ReplicaFailedError(Exception):
    """A process of the fleet ended by itself, or never reached the expected state."""


@dataclass(frozen=True, slots=True)
class Exit:
    """A process of *name* ended at *t*; *asked* is whether the harness had ended or broken it."""

    name: str
    t: float
    pid: int
    code: int
    asked: bool


class Replica:
    """A place with at most one process at a time. `run` lasts as long as the fleet."""

    def __init__(
        self,
        name: str,
        *,
        command: Callable[[int], Sequence[str]],
        directory: Path,
        environment: Mapping[str, str],
        clock: Clock,
        restart_delay_s: float = 0.2,
    ) -> None:
        self.name = name
        self.processes: list[Process] = []
        self.exits: list[Exit] = []
        self._command = command
        self._directory = directory
        self._environment = environment
        self._clock = clock
        self._restart_delay_s = restart_delay_s
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._asked = False

    @property
    def current(self) -> Process | None:
        """The process that fills the place now."""
        if self.processes and self.processes[-1].ended_at is None:
            return self.processes[-1]
        return None

    @property
    def is_wanted(self) -> bool:
        """Whether the place should be filled."""
        return self._wanted.is_set()

    @property
    def is_frozen(self) -> bool:
        return self.current is not None and self.current.is_frozen

    @property
    def log(self) -> Path:
        """What all its processes printed."""
        return self._directory / f"{self.name}.log"

    @property
    def unasked_exits(self) -> list[Exit]:
        """Ends that the harness did not cause by a signal."""
        return [exit_ for exit_ in self.exits if not exit_.asked]

    async def run(self) -> None:
        """Keep the place filled while it is wanted; cancelled at the end of the fleet."""
        while True:
            await self._wanted.wait()
            self._asked = False
            process = await start_process(
                self._command(len(self.processes)),
                name=self.name,
                log=self.log,
                environment=self._environment,
                clock=self._clock,
            )
            self.processes.append(process)
            await self._announce()
            await self._outlive(process)
            await asyncio.sleep(self._restart_delay_s)

    async def _outlive(self, process: Process) -> None:
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await asyncio.shield(process.wait())
            raise
        self.exits.append(
            Exit(self.name, process.ended_at or self._clock.now(), process.pid, code, self._asked)
        )
        await self._announce()

    def want(self) -> None:
        """Let the place be filled."""
        self._wanted.set()

    def abandon(self) -> None:
        """Start nothing in this place any more; what runs goes on."""
        self._wanted.clear()

    async def stop(self, *, grace_s: float = 20.0) -> None:
        """End the process by SIGTERM, by SIGKILL after *grace_s*, and leave the place empty."""
        self.abandon()
        await self._end(grace_s)

    async def restart(self, *, grace_s: float = 20.0) -> None:
        """End the process by SIGTERM and wait for the next one to be started."""
        before = len(self.processes)
        await self._end(grace_s)
        await self.wait_until(lambda: len(self.processes) > before, within_s=max(10.0, grace_s))

    async def _end(self, grace_s: float) -> None:
        process = self.current
        if process is None:
            return
        self._asked = True
        process.terminate()
        try:
            await self.wait_until(lambda: process.ended_at is not None, within_s=grace_s)
        except TimeoutError:
            process.kill()
            await self.wait_until(lambda: process.ended_at is not None, within_s=10.0)

    def kill(self) -> Process:
        """SIGKILL the process; the place is filled again if it is wanted."""
        process = self._running()
        self._asked = True
        process.kill()
        return process

    def freeze(self) -> Process:
        """SIGSTOP the process."""
        process = self._running()
        process.freeze()
        return process

    def wake(self) -> None:
        """SIGCONT the process."""
        self._running().wake()

    def _running(self) -> Process:
        if self.current is None:
            raise ReplicaFailedError(f"{self.name} has no running process")
        return self.current

    async def wait_until(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Wait for a start or an end that makes *condition* true. Raises: TimeoutError."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(condition)

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()
