"""Sharders as processes of a row, and the assignments that they write: rates beside wrk with the same patches.

The same watch counts both. wrk: from the first write to the last. The sharder: from its lead (or its take of a dead
shard's Lease) to the last write, so that listing and deciding count against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from benchmarks.measuring.observations import NotSeen, wait_for
from benchmarks.measuring.processes import Cores, PeakMemory, Running, start
from benchmarks.measuring.run import Run
from benchmarks.measuring.stock import Owners
from benchmarks.measuring.testbed import MEMBERS, Testbed
from benchmarks.measuring.wrk import PER_S_AT_MOST, Load, Request, Writes, reach_limit, writes_of
from loadtest.machine import family
from ring import HashRing, object_key
from ringleader.testing.commands import sharder_command
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from sharder.settings import ELECTION_LEASE
from sharder.writing.object_writer import FIELD_MANAGER

_CONVERGED: Final = "ringleader_ring_converged"
_RING_VERSION: Final = "ringleader_ring_version"
_POLL_S: Final = 0.25
_ONE_MORE: Final = "one-more"
_SETTLED_S: Final = 3.0
"""Longer than the ring's settle window, within which a ring may still change."""
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(slots=True)
class Sharder:
    """One running sharder."""

    name: str
    running: Running
    memory: PeakMemory
    leads_at: float = 0.0

    @property
    def pid(self) -> int:
        return self.running.pid

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
        """The version of the ring under which every object is at its place; None while one is not."""
        await asyncio.sleep(_POLL_S)
        is_converged = await self.running.metric(_CONVERGED) == 1
        return await self.running.metric(_RING_VERSION) if is_converged else None


@asynccontextmanager
async def sharding(
    testbed: Testbed, *, row: str, name: str = "sharder-1", kubeconfig: Path | None = None, wait: bool = True
) -> AsyncIterator[Sharder]:
    """A sharder that leads (with *wait*) and ends with the block; its peak memory is noted for *row*."""
    known = len(testbed.leases.log)
    account = kubeconfig or testbed.sharder.kubeconfig
    process = await start(
        lambda ports: sharder_command(testbed.spec, identity=name, kubeconfig=account, ports=ports),
        testbed.directory,
        name=name,
        clock=testbed.clock,
    )
    sharder = Sharder(name, process, PeakMemory(process.pid))
    sampling = asyncio.create_task(sharder.memory.run(), name=f"memory of {name}")
    try:
        if wait:
            await wait_for(lambda: _leads_at(testbed, name, known) > 0, f"{name} to lead", within_s=60)
            sharder.leads_at = _leads_at(testbed, name, known)
        yield sharder
        sharder.memory.sample()
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        if process.is_running:
            await process.terminate()
        testbed.peaks.note(row, sharder.memory)


def _leads_at(testbed: Testbed, name: str, known: int) -> float:
    """The instant at which *name* took the lead, among the changes after the first *known*; 0 if it did not."""
    changes = testbed.leases.log[known:]
    return next((c.at for c in changes if c.name == ELECTION_LEASE and c.after == name), 0.0)


# -- owners -------------------------------------------------------------------------------------------------


def owners_on(testbed: Testbed, shards: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """The shard of each of *names* (the stock) on a ring of the members that *shards* names."""
    names = names or testbed.stock.names
    ring = HashRing(sorted(shards))
    keys = [object_key(testbed.resource.group, testbed.namespace, name) for name in names]
    return {name: shards[member] for name, member in zip(names, ring.owners(keys), strict=True)}


async def set_owners(
    testbed: Testbed, run: Run, owners: Owners, *, names: Sequence[str] | None = None
) -> None:
    """Let each of *names* (all) have its owner in *owners* before a measurement. No sharder may run."""
    with run.console.counting("setting the objects", len(testbed.stock.unlike(owners, names))) as tick:
        await testbed.stock.set(owners, tick, names=names)
    testbed.observations.start_over()


async def own_by_stand_ins(testbed: Testbed, run: Run) -> None:
    """Let three stand-ins join and every object belong to its owner on their ring. No sharder may run."""
    await testbed.stand_ins.join(MEMBERS)
    await set_owners(testbed, run, owners_on(testbed, testbed.stand_ins.shards))


# -- rates --------------------------------------------------------------------------------------------------


def cores_of(testbed: Testbed, name: str, pid: int) -> dict[str, Cores]:
    """The cores that the program *name* (process *pid*) and the server use from now on."""
    return {name: Cores(family(pid), testbed.clock), "server": Cores(testbed.plane.pids, testbed.clock)}


async def assign_all(testbed: Testbed, run: Run, sharder: Sharder) -> Writes:
    """Wait until every object has an owner."""
    seen, total = testbed.observations, len(testbed.stock.names)
    cores = cores_of(testbed, "sharder", sharder.pid)
    await run.follow("first assignment", total, lambda: total - seen.owned[""])
    changes = [change for change in seen.log if change.before == "" and change.after]
    return writes_of(sharder.leads_at, changes, cores)


async def join_one(testbed: Testbed, *, within_s: float, names: Sequence[str] = ()) -> tuple[float, int]:
    """One more stand-in joins: seconds to the last object of its share of *names* (the stock), and the share.

    Raises: NotSeen.
    """
    seen, began_at = testbed.observations, testbed.clock.now()
    await testbed.stand_ins.join([_ONE_MORE])
    newcomer = testbed.stand_ins.shards[_ONE_MORE]
    owners = owners_on(testbed, testbed.stand_ins.shards, names)
    share = frozenset(name for name, owner in owners.items() if owner == newcomer)
    await wait_for(
        lambda: all(seen.owner_of(name) == newcomer for name in share),
        f"{_ONE_MORE} to own its {len(share)} objects",
        within_s=within_s,
    )
    last_at = max((change.at for change in seen.gained([newcomer]) if change.name in share), default=began_at)
    return last_at - began_at, len(share)


# -- the limit ----------------------------------------------------------------------------------------------


ByWrk = Callable[[Owners, Sequence[str]], Awaitable[Writes]]
"""`assign_by_wrk` with everything but owners and names."""


def within_limit(testbed: Testbed, limit_s: float) -> Sequence[str]:
    """The objects that a run of wrk of *limit_s* may reach."""
    return testbed.stock.names[: int(limit_s * PER_S_AT_MOST)]


async def assign_by_wrk(
    testbed: Testbed, run: Run, owners: Owners, names: Sequence[str], *, connections: int, limit_s: float
) -> Writes:
    """wrk writes for *names* what the sharder would write to give them their *owners*. Raises: WrkFailed, NotSeen."""
    seen = testbed.observations
    seen.start_over()
    headers = {
        "Authorization": f"Bearer {testbed.sharder.token}",
        "User-Agent": "ringleader-sharder",
        "Accept": _PARTIAL,
        "Content-Type": patch_of(
            Assign("any"), seen.meta(names[0], testbed.namespace), keys=testbed.keys
        ).content_type,
    }
    return await reach_limit(
        [_request(testbed, name, owners[name]) for name in names],
        Load(headers, connections, limit_s),
        testbed=testbed,
        changes=lambda: seen.log,
        console=run.console,
    )


def _request(testbed: Testbed, name: str, owner: str) -> Request:
    """The patch that the sharder sends to give *name* to *owner*."""
    patch = patch_of(Assign(owner), testbed.observations.meta(name, testbed.namespace), keys=testbed.keys)
    path = testbed.resource.path(namespace=testbed.namespace, name=name)
    return Request(f"{path}?{urlencode({'fieldManager': FIELD_MANAGER})}", patch.encode())
