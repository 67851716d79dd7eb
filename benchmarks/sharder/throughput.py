"""The rows that are judged by the limit: first assignment and take-over, in turns with wrk and the same patches.

The rate of both is counted by the same watch. wrk's: from the first write to the last. The sharder's is the stricter
one: from the moment it leads (or takes the dead shard's Lease) to the last write, so that listing and deciding count.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.measuring.goals import round_off
from benchmarks.measuring.limit import Limit
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Row, Series, series
from benchmarks.measuring.sightings import OwnerChange, wait_for
from benchmarks.measuring.stock import Owners
from benchmarks.sharder.fleet import Sharder, owners_on, sharding
from benchmarks.sharder.goals import figure
from benchmarks.sharder.ground import MEMBERS, STAND_IN_LEASE_S, Ground
from benchmarks.sharder.limit import limit_names, measure_limit
from benchmarks.sharder.rows import Options, Peaks
from loadtest.machine import family, rss_mb


@dataclass(frozen=True, slots=True)
class Stretch:
    """Writes of the sharder from *since* on."""

    since: float
    changes: Sequence[OwnerChange]
    cores: Mapping[str, float] = field(default_factory=dict)
    """Used meanwhile by sharder and server."""
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """The same for each write: what keeps it from the limit when the cores are all busy."""

    @property
    def per_s(self) -> float:
        """All of them, over the time from *since* to the last."""
        return len(self.changes) / (self.changes[-1].at - self.since)

    @property
    def per_s_while_writing(self) -> float:
        """The same from the first write on, as wrk is counted."""
        took_s = self.changes[-1].at - self.changes[0].at
        return (len(self.changes) - 1) / took_s if took_s > 0 else 0.0

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.per_s),
            "per_s_from_first_write": round_off(self.per_s_while_writing),
            "writes": len(self.changes),
            "to_first_write_s": round(self.changes[0].at - self.since, 2),
            "to_last_write_s": round(self.changes[-1].at - self.since, 2),
            "cores": dict(self.cores),
            "cpu_ms_per_write": dict(self.cpu_ms),
        }

    def series(self, name: str) -> Series:
        return series(name, [change.at for change in self.changes], since=self.since)


async def measure_assignment(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """wrk and the sharder in turns; each begins with objects that have no owner."""
    row = Row(key="assign")
    await ground.stand_ins.join(MEMBERS)
    owners = owners_on(ground, ground.stand_ins.shards)
    limits: list[Limit] = []
    runs: list[Stretch] = []
    rests: list[float] = []
    for number in range(options.rounds):
        await set_owners(ground, meter, {}, names=limit_names(ground, options))
        limits.append(await measure_limit(ground, meter, options, owners, limit_names(ground, options)))
        await set_owners(ground, meter, {})
        async with sharding(ground, peaks, row="assign") as sharder:
            runs.append(await assign_all(ground, meter, sharder))
            await sharder.wait_idle()
            rests.append(round(rss_mb(sharder.running.pid), 1))
        row.series += [limits[-1].series(f"wrk {number + 1}"), runs[-1].series(f"sharder {number + 1}")]
    limit = statistics.fmean(run.per_s for run in limits)
    reached = statistics.fmean(run.per_s for run in runs)
    row.details = {
        "limit_per_s": round_off(limit),
        "sharder": [run.details() for run in runs],
        "wrk": [run.details() for run in limits],
        "rss_after_mb": rests,
    }
    row.figures = [figure("assign", 100 * reached / limit, f"{reached:,.0f}/s of {limit:,.0f}/s")]
    return row


async def assign_all(ground: Ground, meter: Meter, sharder: Sharder) -> Stretch:
    """Wait until every object has an owner."""
    seen = ground.sightings
    cores = cores_of(ground, sharder)
    await meter.follow(
        "first assignment", len(ground.stock.names), lambda: len(ground.stock.names) - seen.owned[""]
    )
    changes = [change for change in seen.log if change.before == "" and change.after]
    return _stretch(sharder.leads_at, changes, cores)


async def measure_takeover(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """wrk, sharder, wrk: each gives the objects of one of three shards to the other two."""
    row = Row(key="takeover")
    await ground.stand_ins.join(MEMBERS)
    before = owners_on(ground, ground.stand_ins.shards)
    victim = ground.stand_ins.shards[MEMBERS[-1]]
    left = {member: shard for member, shard in ground.stand_ins.shards.items() if shard != victim}
    after = owners_on(ground, left)
    orphans = [name for name, shard in before.items() if shard == victim]

    await set_owners(ground, meter, before)
    limits = [await measure_limit(ground, meter, options, after, orphans)]
    await set_owners(ground, meter, before)
    async with sharding(ground, peaks, row="takeover") as sharder:
        await sharder.wait_idle()
        run = await _take_over(ground, meter, sharder, victim, len(orphans))
        await sharder.wait_idle()
    await set_owners(ground, meter, before)
    limits.append(await measure_limit(ground, meter, options, after, orphans))

    limit = statistics.fmean(one.per_s for one in limits)
    row.series = [run.series("sharder")]
    row.series += [one.series(f"wrk {number + 1}") for number, one in enumerate(limits)]
    row.details = {
        "limit_per_s": round_off(limit),
        "sharder": run.details(),
        "wrk": [one.details() for one in limits],
    }
    how = f"{run.per_s:,.0f}/s of {limit:,.0f}/s; {run.per_s_while_writing:,.0f}/s from the first write on"
    row.figures = [figure("takeover", 100 * run.per_s / limit, how)]
    return row


async def _take_over(ground: Ground, meter: Meter, sharder: Sharder, victim: str, orphans: int) -> Stretch:
    seen, leases = ground.sightings, ground.leases
    seen.start_over()
    leases.start_over()
    member = next(member for member, shard in ground.stand_ins.shards.items() if shard == victim)
    ground.stand_ins.die(member)
    await wait_for(
        lambda: leases.taken_at(victim) is not None, "the Lease to be taken", within_s=6 * STAND_IN_LEASE_S
    )
    cores = cores_of(ground, sharder)
    await meter.follow("take-over of a dead shard", orphans, lambda: orphans - seen.owned[victim])
    taken_at = leases.taken_at(victim) or 0.0
    changes = [change for change in seen.log if change.before == victim]
    return _stretch(taken_at, changes, cores)


def _stretch(since: float, changes: Sequence[OwnerChange], cores: Mapping[str, Cores]) -> Stretch:
    return Stretch(
        since,
        changes,
        {who: one.used() for who, one in cores.items()},
        {who: one.ms_per(len(changes)) for who, one in cores.items()},
    )


def cores_of(ground: Ground, sharder: Sharder) -> dict[str, Cores]:
    """What *sharder* and the server use from now on."""
    return {
        "sharder": Cores(family(sharder.running.pid), ground.clock),
        "server": Cores(ground.plane.pids, ground.clock),
    }


async def own_by_stand_ins(ground: Ground, meter: Meter) -> None:
    """Let three stand-ins live and every object belong to the one at its place. No sharder may run."""
    await ground.stand_ins.join(MEMBERS)
    await set_owners(ground, meter, owners_on(ground, ground.stand_ins.shards))


async def set_owners(
    ground: Ground, meter: Meter, owners: Owners, *, names: Sequence[str] | None = None
) -> None:
    """Let each of *names* (all) have its owner in *owners* before something is measured. No sharder may run."""
    with meter.counting("setting the objects", len(ground.stock.unlike(owners, names))) as tick:
        await ground.stock.set(owners, tick, names=names)
    ground.sightings.start_over()
