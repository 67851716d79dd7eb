"""The processes of a row: sharders and replicas, started on the row's ground and ended with their block.

Owns names, command lines and the waiting until a process does what it is there for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.measuring.processes import PeakMemory, Running, start
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.sharder.ground import Ground
from benchmarks.sharder.rows import Peaks
from ring import HashRing, object_key
from ringleader.testing.commands import Mode, shard_command, sharder_command
from sharder.settings import ELECTION_LEASE

_CONVERGED: Final = "ringleader_ring_converged"
_RING_VERSION: Final = "ringleader_ring_version"
_POLL_S: Final = 0.25
_SETTLED_S: Final = 3.0
"""Longer than the ring's settle window, within which a ring may still change."""


@dataclass(slots=True)
class Sharder:
    """One running sharder."""

    name: str
    running: Running
    memory: PeakMemory
    leads_at: float = 0.0

    async def wait_idle(self, *, within_s: float = 120.0) -> None:
        """Wait until it has found every object at its place under a ring that stays. Raises: NotSeen, Ended."""
        try:
            async with asyncio.timeout(within_s):
                found = await self._converged_version()
                while found is None or found != await self._after_settling():
                    found = await self._converged_version()
        except TimeoutError:
            raise NotSeen(f"{self.name} did not converge within {within_s:g} s") from None

    async def _after_settling(self) -> float | None:
        await asyncio.sleep(_SETTLED_S)
        return await self._converged_version()

    async def _converged_version(self) -> float | None:
        """The version of the ring under which everything is at its place; None while something is not."""
        await asyncio.sleep(_POLL_S)
        is_converged = await self.running.metric(_CONVERGED) == 1
        return await self.running.metric(_RING_VERSION) if is_converged else None


@asynccontextmanager
async def sharding(
    ground: Ground,
    peaks: Peaks,
    *,
    row: str,
    name: str = "sharder-1",
    kubeconfig: Path | None = None,
    wait: bool = True,
) -> AsyncIterator[Sharder]:
    """A sharder that leads (with *wait*) and ends with the block; its peak memory is noted for *row*."""
    known = len(ground.leases.log)
    account = kubeconfig or ground.sharder.kubeconfig
    process = await start(
        lambda ports: sharder_command(ground.spec, identity=name, kubeconfig=account, ports=ports),
        ground.directory,
        name=name,
        environment={},
        clock=ground.clock,
    )
    sharder = Sharder(name, process, PeakMemory(process.pid))
    looking = asyncio.create_task(sharder.memory.run(), name=f"memory of {name}")
    try:
        if wait:
            await wait_for(lambda: _leads_at(ground, name, known) > 0, f"{name} to lead", within_s=60)
            sharder.leads_at = _leads_at(ground, name, known)
        yield sharder
        sharder.memory.look()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        if process.is_running:
            await process.terminate()
        peaks.note(row, sharder.memory.mb, sharder.memory.processes)


def _leads_at(ground: Ground, name: str, known: int) -> float:
    """When *name* was seen to take the lead, among the changes after the first *known*; 0 if it was not."""
    changes = ground.leases.log[known:]
    return next((c.at for c in changes if c.name == ELECTION_LEASE and c.after == name), 0.0)


def owners_on(ground: Ground, shards: Mapping[str, str]) -> dict[str, str]:
    """The shard of each object on a ring of the members that *shards* names."""
    names = ground.stock.names
    ring = HashRing(sorted(shards))
    keys = [object_key(ground.resource.group, ground.spec.namespace, name) for name in names]
    return {name: shards[member] for name, member in zip(names, ring.owners(keys), strict=True)}


@dataclass(slots=True)
class Replicas:
    """Replicas of a controller that does nothing, by member."""

    ground: Ground
    running: dict[str, Running] = field(default_factory=dict)
    shards: dict[str, str] = field(default_factory=dict)
    """Shard by member, of those that live."""

    async def add(self, member: str) -> None:
        """Start *member* without waiting."""
        directory = self.ground.directory
        self.running[member] = await start(
            lambda ports: shard_command(
                self.ground.spec,
                member=member,
                kubeconfig=self.ground.replica.kubeconfig,
                mode=Mode.SHARDED,
                journal=directory / f"{member}.journal",
                ports=ports,
            ),
            directory,
            name=member,
            environment={},
            clock=self.ground.clock,
        )

    async def wait_alive(self, member: str, *, within_s: float = 60.0) -> str:
        """The shard that *member*'s newest process is, once it holds its Lease."""
        dead = self.shards.get(member)

        def found() -> list[str]:
            holders = self.ground.leases.holders
            return [
                name
                for name, holder in holders.items()
                if name.startswith(f"{member}-") and holder == name and name != dead
            ]

        await wait_for(lambda: bool(found()), f"{member} to hold a Lease", within_s=within_s)
        self.shards[member] = found()[0]
        return self.shards[member]


@asynccontextmanager
async def replicas_of(ground: Ground, members: int) -> AsyncIterator[Replicas]:
    """*members* replicas that hold their Leases; all of them are killed when the block ends."""
    replicas = Replicas(ground)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_kill_all, replicas)
        for number in range(members):
            await replicas.add(f"replica-{number + 1}")
        for number in range(members):
            await replicas.wait_alive(f"replica-{number + 1}")
        yield replicas


async def _kill_all(replicas: Replicas) -> None:
    for process in replicas.running.values():
        await process.kill()
