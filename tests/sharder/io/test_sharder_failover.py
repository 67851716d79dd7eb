"""The leading sharder is killed or suspended in mid-rebalance, again and again: the standby goes on.

The sharders are real processes; the shards are Leases of this test, and one task passes objects on as owners do. The
judge is the server's own log of writes: under one ring version an object changes its owner at most once.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from devcluster.faults import Fault
from devcluster.plane import Write
from kubeio.clock import SystemClock
from kubeio.errors import NotFound
from ringleader.testing.commands import FleetSpec, sharder_command
from ringleader.testing.process import Process, start_process
from tests.sharder.io.environment import (
    KEYS,
    RING,
    WEBSITES,
    SharderEnvironment,
    eventually,
    places,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on

pytestmark = pytest.mark.timeout(300)

OBJECTS = int(os.environ.get("RINGLEADER_FAILOVER_OBJECTS", "800"))
"""`make failover` sets 20,000; the everyday run has what takes seconds."""
ELECTION = "ringleader-sharder"
IN_FLIGHT = min(200, OBJECTS // 40)
"""So that handing over takes several rounds."""
SLOW = Fault(what="latency", verb="patch", resource="websites.example.com", delay_s=0.1)
"""So that each step lasts long enough to be interrupted."""


class Sharders:
    """Two sharder processes; whoever ends is started again."""

    def __init__(self, env: SharderEnvironment, directory: Path, tasks: asyncio.TaskGroup) -> None:
        self._env = env
        self._directory = directory
        self._tasks = tasks
        self._spec = FleetSpec(ring=RING, lease_namespace="default", lease_s=3)
        self._count = 0
        self.running: dict[str, Process] = {}

    async def start(self) -> None:
        self._count += 1
        name = f"sharder-{self._count}"
        command = sharder_command(
            self._spec,
            identity=name,
            kubeconfig=await self._env.plane.kubeconfig_for(name),
            ports=self._directory / f"{name}.port",
        )
        log = self._directory / f"{name}.log"
        process = await start_process(command, name=name, log=log, environment={}, clock=SystemClock())
        self.running[name] = process
        self._tasks.create_task(self._start_again(name, process), name=name)

    async def _start_again(self, name: str, process: Process) -> None:
        """A sharder that lost its leadership on a busy machine ends itself: as a kubelet would, start another."""
        await process.wait()
        if self.running.get(name) is process:
            del self.running[name]
            await self.start()

    async def leader(self) -> str:
        async def leads() -> str:
            with suppress(NotFound):
                holder = (await self._env.leases.get(ELECTION)).spec.holder_identity or ""
                return holder if holder in self.running else ""
            return ""

        await wait_until(leads, within_s=20)
        return await leads() or await self.leader()

    async def kill_leader(self, *, once: Awaitable[None]) -> None:
        """SIGKILL, and a new standby in its place."""
        (await self._leader_then(once)).kill()
        await self.start()

    async def suspend_leader(self, *, once: Awaitable[None]) -> Process:
        """SIGSTOP beyond its Lease; another sharder does its work now."""
        process = await self._leader_then(once)
        process.freeze()
        await self.start()
        return process

    async def _leader_then(self, once: Awaitable[None]) -> Process:
        """The leader's process, at once when the moment has come: who leads was asked before."""
        name = await self.leader()
        await once
        return self.running.pop(name, None) or self.running.pop(await self.leader())

    def stop(self) -> None:
        ended, self.running = self.running, {}
        for process in ended.values():
            process.kill()


@asynccontextmanager
async def two_sharders(env: SharderEnvironment, directory: Path) -> AsyncIterator[Sharders]:
    async with asyncio.TaskGroup() as tasks:
        sharders = Sharders(env, directory, tasks)
        try:
            await sharders.start()
            await sharders.start()
            yield sharders
        finally:
            sharders.stop()


class Judge:
    """Reads the server's log of writes, phase by phase: one phase is one set of members."""

    def __init__(self, env: SharderEnvironment) -> None:
        self._env = env
        self._seen = 0

    def fresh(self) -> list[Write]:
        """Accepted changes of the owner since the last phase ended."""
        return [write for write in self._env.plane.writes()[self._seen :] if changes_owner(write)]

    def end_phase(self) -> Counter[str]:
        """Every object changed its owner at most once in it; gives how often each did."""
        changes = Counter(write.name for write in self.fresh())
        twice = {name: count for name, count in changes.items() if count > 1}
        assert not twice, f"changed their owner more than once under one ring: {twice}"
        self._seen = len(self._env.plane.writes())
        return changes

    async def reached(self, changed: int) -> None:
        """Return when so many objects have changed their owner in this phase."""
        await wait_until(lambda: len(self.fresh()) >= changed, within_s=120)

    def assert_unfinished(self, changes: int) -> None:
        """What was broken just now was broken in the middle of the work."""
        assert len(self.fresh()) < changes, "the leader had finished before: the test proves nothing"


def changes_owner(write: Write) -> bool:
    if write.resource != WEBSITES.group_resource or write.code != 200 or write.labels_after is None:
        return False
    before = (write.labels_before or {}).get(KEYS.shard)
    return write.labels_after.get(KEYS.shard) != before


async def create_sites(env: SharderEnvironment, count: int) -> list[str]:
    slots = asyncio.Semaphore(32)

    async def create(name: str) -> None:
        async with slots:
            await env.site(name)

    names = [f"site-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(create(name))
    return names


async def test_the_leader_may_die_or_freeze_in_mid_rebalance_and_no_object_moves_twice(
    env: SharderEnvironment, tmp_path: Path
) -> None:
    rng = random.Random(OBJECTS)
    await env.ring(maxInFlight=IN_FLIGHT, settleSeconds=1, maxLeaseDurationSeconds=10)
    shards = {member: await env.shard(member, duration_s=6) for member in ("a", "b", "c")}
    names = await create_sites(env, OBJECTS)
    judge = Judge(env)
    await env.plane.faults.add(SLOW)
    async with two_sharders(env, tmp_path) as sharders, owners_that_pass_on(env):
        # Everything is new: the leader dies at two points of the first assignment.
        for point in sorted(rng.sample(range(OBJECTS // 10, OBJECTS * 9 // 10), 2)):
            await sharders.kill_leader(once=judge.reached(point))
            judge.assert_unfinished(OBJECTS)
        await eventually(env.owners, places("abc", names), within_s=120)
        assert len(judge.end_phase()) == OBJECTS

        # One joins: the leader is suspended while objects are handed over, and wakes when all is done.
        shards["d"] = await env.shard("d", duration_s=6)
        moving = sum(owner == "d-00000001" for owner in places("abcd", names).values())
        point = rng.randrange(moving // 10, moving * 9 // 10)
        asleep = await sharders.suspend_leader(once=judge.reached(point))
        judge.assert_unfinished(moving)
        await eventually(env.owners, places("abcd", names), within_s=120)
        await sharders.leader()  # another one: it woke too late
        asleep.wake()
        await wait_until(lambda: asleep.ended_at is not None, within_s=20)
        assert asleep.exit_code != 0, "it lost its leadership and says so"
        await asyncio.sleep(2)
        assert await env.owners() == places("abcd", names)
        assert len(judge.end_phase()) == moving

        # One dies: the leader dies while its objects are taken over.
        lost = sum(owner == "b-00000001" for owner in places("abcd", names).values())
        await shards["b"].fall_silent()
        point = rng.randrange(lost // 10, lost * 9 // 10)
        await sharders.kill_leader(once=judge.reached(point))
        judge.assert_unfinished(lost)
        await eventually(env.owners, places("acd", names), within_s=120)
        await env.until_balanced(within_s=30)
        changes = judge.end_phase()
        assert len(changes) >= lost
