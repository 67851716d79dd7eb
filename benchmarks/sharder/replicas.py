"""The rows about real replicas: one joins, one gets SIGTERM, one crashes and is started again.

Both sides are ours: the sharder, and `shard_controller` processes whose reconciler does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.measuring.observations import wait_for
from benchmarks.measuring.processes import Cores, Running, start
from benchmarks.measuring.report import round_off
from benchmarks.measuring.run import Run
from benchmarks.measuring.sharders import Sharder, cores_of, owners_on
from benchmarks.measuring.testbed import Testbed
from benchmarks.measuring.wrk import Writes, mean_limit
from ringleader.testing.commands import Mode, shard_command
from ringleader.testing.journal import Begin, Journal

NEWCOMER: Final = "replica-4"


@dataclass(slots=True)
class Replicas:
    """Replicas of a controller that does nothing, by member."""

    testbed: Testbed
    running: dict[str, Running] = field(default_factory=dict)
    shards: dict[str, str] = field(default_factory=dict)
    """Shard by member, of those that hold a Lease."""

    async def add(self, member: str) -> None:
        """Start *member* without waiting."""
        testbed = self.testbed
        self.running[member] = await start(
            lambda ports: shard_command(
                testbed.spec,
                member=member,
                kubeconfig=testbed.replica.kubeconfig,
                mode=Mode.SHARDED,
                journal=testbed.directory / f"{member}.journal",
                ports=ports,
            ),
            testbed.directory,
            name=member,
            clock=testbed.clock,
        )

    async def wait_alive(self, member: str) -> str:
        """The shard that *member*'s newest process is, once it holds its Lease."""
        dead = self.shards.get(member)

        def found() -> list[str]:
            held = (name for name, holder in self.testbed.leases.holders.items() if holder == name)
            return [name for name in held if name.startswith(f"{member}-") and name != dead]

        await wait_for(lambda: bool(found()), f"{member} to hold a Lease", within_s=60)
        self.shards[member] = found()[0]
        return self.shards[member]


@asynccontextmanager
async def replicas_of(testbed: Testbed, members: int) -> AsyncIterator[Replicas]:
    """*members* replicas that hold their Leases; all of them are killed when the block ends."""
    replicas = Replicas(testbed)
    names = [f"replica-{number + 1}" for number in range(members)]
    try:
        for name in names:
            await replicas.add(name)
        for name in names:
            await replicas.wait_alive(name)
        yield replicas
    finally:
        for process in replicas.running.values():
            await process.kill()


async def own_all(testbed: Testbed, run: Run, replicas: Replicas) -> None:
    """Let every object belong to the replica at its place. No sharder may run."""
    owners = owners_on(testbed, replicas.shards)
    with run.console.counting("giving the objects to replicas", len(testbed.stock.unlike(owners))) as tick:
        await testbed.stock.set(owners, tick)


# -- join ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A join as the watch saw it: *drains* and *passes* are the instants of the two writes of each handoff."""

    began_at: float
    drains: Sequence[float]
    passes: Sequence[float]
    gaps: int
    """Times that an object had no owner in between: a handoff that was not directed."""
    ideal: int
    most_in_flight: int
    cores: Mapping[str, float] = field(default_factory=dict)
    """Used meanwhile by sharder, server and replicas."""

    @property
    def per_s(self) -> float:
        """Objects passed on, over the time from the first drain label to the last object."""
        return len(self.passes) / (self.passes[-1] - self.drains[0])


async def watch_join(testbed: Testbed, run: Run, replicas: Replicas, sharder: Sharder) -> Join:
    """A fourth replica joins three, and everything moves to its place."""
    await sharder.wait_idle()
    seen = testbed.observations
    seen.start_over()
    before = owners_on(testbed, replicas.shards)
    began_at = testbed.clock.now()
    await replicas.add(NEWCOMER)
    newcomer = await replicas.wait_alive(NEWCOMER)
    after = owners_on(testbed, replicas.shards)
    cores = cores_of(testbed, "sharder", sharder.pid)
    cores["replicas"] = Cores([one.pid for one in replicas.running.values()], testbed.clock)
    moving = sum(1 for name in after if before[name] != after[name])
    await run.follow("join of a 4th shard", moving, lambda: len(seen.log))
    used = {who: one.used() for who, one in cores.items()}
    wanted = Counter(after.values())
    await wait_for(lambda: seen.has_owners(wanted), "every object to be at its place", within_s=120)
    passes = [change.at for change in seen.log if change.after]
    return Join(
        began_at=began_at,
        drains=list(seen.drains),
        passes=passes,
        gaps=len(seen.log) - len(passes),
        ideal=sum(1 for shard in after.values() if shard == newcomer),
        most_in_flight=seen.most_draining,
        cores=used,
    )


def note_join(run: Run, join: Join, limits: Sequence[Writes]) -> None:
    """The join beside the limit: each handoff is two writes."""
    half = mean_limit(limits) / 2
    moved = len(join.passes)
    run.figure("join", 100 * join.per_s / half, f"{join.per_s:,.0f}/s of {half:,.0f}/s")
    run.figure("join-moves", moved / join.ideal, f"{moved:,} moved, {join.ideal:,} belong to the newcomer")
    run.figure("join-in-flight", float(join.most_in_flight), "by an independent watch")
    run.detail(
        "join",
        limit_per_s=round_off(2 * half),
        wrk=[limit.details() for limit in limits],
        per_s=round_off(join.per_s),
        moved=moved,
        ideal=join.ideal,
        without_owner_in_between=join.gaps,
        cores=dict(join.cores),
        start_to_first_drain_s=round(join.drains[0] - join.began_at, 2),
        first_drain_to_last_object_s=round(join.passes[-1] - join.drains[0], 2),
    )


# -- ends ---------------------------------------------------------------------------------------------------


async def measure_term(testbed: Testbed, run: Run, replicas: Replicas, sharder: Sharder) -> None:
    """SIGTERM the newest replicas, one after the other, until two are left."""
    waits_s: list[float] = []
    rates: list[float] = []
    for member in sorted(replicas.shards, reverse=True)[: len(replicas.shards) - 2]:
        await sharder.wait_idle()
        wait_s, per_s = await _end_one(testbed, run, replicas, member)
        waits_s.append(wait_s)
        rates.append(per_s)
    how = f"of {len(waits_s)}: {', '.join(f'{wait_s:.2f}' for wait_s in waits_s)} s"
    run.figure("term", max(waits_s), how)
    run.detail("term", waits_s=waits_s, then_per_s=[round_off(per_s) for per_s in rates])


async def _end_one(testbed: Testbed, run: Run, replicas: Replicas, member: str) -> tuple[float, float]:
    """Seconds to the first object that left *member*, and the rate at which all left."""
    seen = testbed.observations
    shard = replicas.shards.pop(member)
    count = seen.owned[shard]
    seen.start_over()
    ended_at = testbed.clock.now()
    replicas.running[member].process.terminate()
    await run.follow("SIGTERM of a replica", count, lambda: count - seen.owned[shard])
    await replicas.running[member].terminate()
    left = [change.at for change in seen.log if change.before == shard]
    took_s = left[-1] - left[0]
    return left[0] - ended_at, (len(left) - 1) / took_s if took_s else 0.0


async def measure_restart(testbed: Testbed, run: Run, replicas: Replicas, sharder: Sharder) -> None:
    """kill -9 a replica and start it again at once, as a kubelet does: until it works on an object of its own."""
    await sharder.wait_idle()
    seen = testbed.observations
    member = min(replicas.shards)
    dead = replicas.shards[member]
    count = seen.owned[dead]
    seen.start_over()
    killed_at = testbed.clock.now()
    await replicas.running[member].kill()
    started_at = testbed.clock.now()
    await replicas.add(member)
    shard = await replicas.wait_alive(member)
    await run.follow("container restarted", count, lambda: seen.owned[shard])
    passed = [change.at for change in seen.log if change.after == shard]
    journal = Journal(testbed.directory / f"{member}.journal")
    await wait_for(lambda: len(_worked(journal, shard)) >= count, "every object to be worked on", within_s=60)
    worked = _worked(journal, shard)
    first_s, last_s = min(worked) - started_at, max(worked) - started_at
    run.figure("restart", first_s, f"the first; all {count:,} after {last_s:.1f} s")
    run.detail(
        "restart",
        objects=count,
        from_the_kill_s=round(min(worked) - killed_at, 2),
        first_worked_on_s=round(first_s, 2),
        last_worked_on_s=round(last_s, 2),
        first_assigned_s=round(passed[0] - started_at, 2),
        last_assigned_s=round(passed[-1] - started_at, 2),
        assigned_per_s=round_off(count / (passed[-1] - passed[0])) if count > 1 else None,
    )


def _worked(journal: Journal, shard: str) -> list[float]:
    """Instants at which *shard* began to work on each object, so far."""
    journal.read()
    began = {
        record.uid: record.t
        for record in reversed(journal.records)
        if isinstance(record, Begin) and record.shard == shard
    }
    return list(began.values())
