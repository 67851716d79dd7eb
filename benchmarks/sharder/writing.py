"""Rows about writes of the sharder: first assignment, the same under the guard, take-over, one new object."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.measuring.policies import install_guard, order_of_turns, switch_guard
from benchmarks.measuring.report import round_off
from benchmarks.measuring.run import Run
from benchmarks.measuring.sharders import (
    ByWrk,
    Sharder,
    Stretch,
    assign_all,
    cores_of,
    own_by_stand_ins,
    owners_on,
    set_owners,
    sharding,
    stretch_of,
)
from benchmarks.measuring.sightings import wait_for
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, RING, STAND_IN_LEASE_S, Testbed
from benchmarks.measuring.wrk import Limit
from loadtest.machine import rss_mb
from loadtest.quantiles import percentile

GUARDED: Final = 5_000
"""Objects without owner in each turn: short turns, and many of them, because the machine's speed drifts."""
PAUSE_S: Final = (0.02, 0.08)
"""Between one new object and the next: never in step with anything."""


async def measure_assignment(
    testbed: Testbed, run: Run, *, by_wrk: ByWrk, names: Sequence[str], rounds: int
) -> None:
    """wrk and the sharder in turns; each begins with objects that have no owner."""
    await testbed.stand_ins.join(MEMBERS)
    owners = owners_on(testbed, testbed.stand_ins.shards)
    limits: list[Limit] = []
    turns: list[Stretch] = []
    rests: list[float] = []
    for _ in range(rounds):
        await set_owners(testbed, run, {}, names=names)
        limits.append(await by_wrk(owners, names))
        await set_owners(testbed, run, {})
        async with sharding(testbed, row="assign") as sharder:
            turns.append(await assign_all(testbed, run, sharder))
            await sharder.wait_idle()
            rests.append(round(rss_mb(sharder.pid), 1))
    limit = statistics.fmean(one.per_s for one in limits)
    reached = statistics.fmean(one.per_s for one in turns)
    run.figure("assign", 100 * reached / limit, f"{reached:,.0f}/s of {limit:,.0f}/s")
    run.detail(
        "assign",
        limit_per_s=round_off(limit),
        sharder=[one.details() for one in turns],
        wrk=[one.details() for one in limits],
        rss_after_mb=rests,
    )


async def measure_guard(testbed: Testbed, run: Run, *, rounds: int) -> None:
    """Turns without and with the policies bound, from the first write to the last; the median of the pairs' ratios."""
    if not testbed.is_real:
        run.skip("guard", "the embedded plane has no admission policies")
        return
    ring = {"name": RING, "spec": {"resources": [{"group": testbed.resource.group, "resource": "websites"}]}}
    bindings = await install_guard(testbed.client, ring, namespace=LEASES_IN)
    await testbed.stand_ins.join(MEMBERS)
    owned = owners_on(testbed, testbed.stand_ins.shards)
    for name in testbed.stock.names[:GUARDED]:
        del owned[name]
    turns: dict[bool, list[Stretch]] = {False: [], True: []}
    for number in range(rounds):
        for is_on in order_of_turns(number):
            await switch_guard(testbed.client, bindings, is_on=is_on, namespace=LEASES_IN)
            await set_owners(testbed, run, owned)
            async with sharding(testbed, row="guard") as sharder:
                turns[is_on].append(await assign_all(testbed, run, sharder))
    await switch_guard(testbed.client, bindings, is_on=False, namespace=LEASES_IN)
    rates = {is_on: [turn.per_s_while_writing for turn in found] for is_on, found in turns.items()}
    lost = 100 * (1 - statistics.median(on / off for off, on in zip(rates[False], rates[True], strict=True)))
    cpu = {
        is_on: statistics.median(turn.cpu_ms["server"] for turn in found) for is_on, found in turns.items()
    }
    middle = {is_on: statistics.median(found) for is_on, found in rates.items()}
    how = (
        f"{middle[True]:,.0f}/s of {middle[False]:,.0f}/s, medians of {rounds} turns each; "
        f"CPU of the server for a write {cpu[True]:.2f} ms, {cpu[False]:.2f} without"
    )
    run.figure("guard", lost, how)
    run.detail(
        "guard",
        without=[turn.details() for turn in turns[False]],
        guarded=[turn.details() for turn in turns[True]],
        server_ms_per_write={"without": round_off(cpu[False]), "guarded": round_off(cpu[True])},
    )


async def measure_takeover(testbed: Testbed, run: Run, *, by_wrk: ByWrk) -> None:
    """wrk, sharder, wrk: each gives the objects of one of three shards to the other two."""
    await testbed.stand_ins.join(MEMBERS)
    shards = testbed.stand_ins.shards
    before, victim = owners_on(testbed, shards), shards[MEMBERS[-1]]
    after = owners_on(testbed, {member: shard for member, shard in shards.items() if shard != victim})
    orphans = [name for name, shard in before.items() if shard == victim]

    await set_owners(testbed, run, before)
    limits = [await by_wrk(after, orphans)]
    await set_owners(testbed, run, before)
    async with sharding(testbed, row="takeover") as sharder:
        await sharder.wait_idle()
        turn = await take_over(testbed, run, sharder, victim, len(orphans))
        await sharder.wait_idle()
    await set_owners(testbed, run, before)
    limits.append(await by_wrk(after, orphans))

    limit = statistics.fmean(one.per_s for one in limits)
    how = f"{turn.per_s:,.0f}/s of {limit:,.0f}/s; {turn.per_s_while_writing:,.0f}/s from the first write on"
    run.figure("takeover", 100 * turn.per_s / limit, how)
    run.detail(
        "takeover",
        limit_per_s=round_off(limit),
        sharder=turn.details(),
        wrk=[one.details() for one in limits],
    )


async def take_over(testbed: Testbed, run: Run, sharder: Sharder, victim: str, orphans: int) -> Stretch:
    """The shard *victim* dies, and its *orphans* get other owners."""
    seen, leases = testbed.sightings, testbed.leases
    seen.start_over()
    leases.start_over()
    member = next(member for member, shard in testbed.stand_ins.shards.items() if shard == victim)
    testbed.stand_ins.die(member)
    await wait_for(
        lambda: leases.taken_at(victim) is not None, "the Lease to be taken", within_s=6 * STAND_IN_LEASE_S
    )
    cores = cores_of(testbed, "sharder", sharder.pid)
    await run.follow("take-over of a dead shard", orphans, lambda: orphans - seen.owned[victim])
    changes = [change for change in seen.log if change.before == victim]
    return stretch_of(leases.taken_at(victim) or 0.0, changes, cores)


async def measure_new_objects(testbed: Testbed, run: Run, *, samples: int) -> None:
    """Create one object after the other on an idle ring: from the end of each creation to its owner."""
    await own_by_stand_ins(testbed, run)
    async with sharding(testbed, row="new") as sharder:
        await sharder.wait_idle()
        waits_ms = await wait_for_owners(testbed, run, samples)
    how = f"{len(waits_ms)} samples, at most {max(waits_ms):.1f} ms"
    run.figure("new-p50", percentile(waits_ms, 0.5), how)
    run.figure("new-p99", percentile(waits_ms, 0.99), how)
    run.detail("new", waits_ms=[round(wait, 2) for wait in waits_ms])


async def wait_for_owners(testbed: Testbed, run: Run, samples: int) -> list[float]:
    """Milliseconds that each of *samples* new objects waited."""
    seen = testbed.sightings
    seen.start_over()
    rng = random.Random(1)  # noqa: S311 - pauses, no secret
    created_at: dict[str, float] = {}
    with run.console.counting("one new object on an idle ring", samples) as tick:
        for index in range(samples):
            name = f"new-{index:04d}"
            created_at[name] = await testbed.create(name)
            await wait_for(partial(seen.owner_of, name), f"{name} to be assigned", within_s=30)
            tick(1)
            await asyncio.sleep(rng.uniform(*PAUSE_S))
    waits_ms = [
        (change.at - created_at[change.name]) * 1000 for change in seen.log if change.name in created_at
    ]
    await testbed.delete(list(created_at))
    return waits_ms
