"""Rows about writes of the sharder: first assignment, the same under the guard, take-over, one new object."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.measuring.observations import wait_for
from benchmarks.measuring.policies import install_guard, order_of_round, switch_guard
from benchmarks.measuring.report import round_off
from benchmarks.measuring.run import Run
from benchmarks.measuring.sharders import (
    ByWrk,
    Sharder,
    assign_all,
    cores_of,
    own_by_stand_ins,
    owners_on,
    set_owners,
    sharding,
)
from benchmarks.measuring.testbed import LEASES_IN, MEMBERS, RING, STAND_IN_LEASE_S, Testbed
from benchmarks.measuring.wrk import Writes, mean_limit, writes_of
from loadtest.machine import rss_mb
from loadtest.quantiles import percentile

GUARDED: Final = 5_000
"""Objects without owner in each sample: short samples, and many of them, because the machine's speed drifts."""
PAUSE_S: Final = (0.02, 0.08)
"""Between one new object and the next: never in step with anything."""


async def measure_assignment(
    testbed: Testbed, run: Run, *, by_wrk: ByWrk, names: Sequence[str], rounds: int
) -> None:
    """wrk and the sharder, alternating; each begins with objects that have no owner."""
    await testbed.stand_ins.join(MEMBERS)
    owners = owners_on(testbed, testbed.stand_ins.shards)
    limits: list[Writes] = []
    samples: list[Writes] = []
    rests: list[float] = []
    for _ in range(rounds):
        await set_owners(testbed, run, {}, names=names)
        limits.append(await by_wrk(owners, names))
        await set_owners(testbed, run, {})
        async with sharding(testbed, row="assign") as sharder:
            samples.append(await assign_all(testbed, run, sharder))
            await sharder.wait_idle()
            rests.append(round(rss_mb(sharder.pid), 1))
    limit = mean_limit(limits)
    reached = statistics.fmean(one.per_s for one in samples)
    run.figure("assign", 100 * reached / limit, f"{reached:,.0f}/s of {limit:,.0f}/s")
    run.detail(
        "assign",
        limit_per_s=round_off(limit),
        sharder=[one.details() for one in samples],
        wrk=[one.details() for one in limits],
        rss_after_mb=rests,
    )


async def measure_guard(testbed: Testbed, run: Run, *, rounds: int) -> None:
    """Rates without and with the policies bound, from the first write to the last; the median of the pairs' ratios."""
    if not testbed.is_real:
        run.skip("guard", "the embedded plane has no admission policies")
        return
    ring = {"name": RING, "spec": {"resources": [{"group": testbed.resource.group, "resource": "websites"}]}}
    bindings = await install_guard(testbed.client, ring, namespace=LEASES_IN)
    await testbed.stand_ins.join(MEMBERS)
    owned = owners_on(testbed, testbed.stand_ins.shards)
    for name in testbed.stock.names[:GUARDED]:
        del owned[name]
    samples: dict[bool, list[Writes]] = {False: [], True: []}
    for number in range(rounds):
        for is_on in order_of_round(number):
            await switch_guard(testbed.client, bindings, is_on=is_on, namespace=LEASES_IN)
            await set_owners(testbed, run, owned)
            async with sharding(testbed, row="guard") as sharder:
                samples[is_on].append(await assign_all(testbed, run, sharder))
    await switch_guard(testbed.client, bindings, is_on=False, namespace=LEASES_IN)
    rates = {is_on: [sample.per_s_while_writing for sample in found] for is_on, found in samples.items()}
    lost = 100 * (1 - statistics.median(on / off for off, on in zip(rates[False], rates[True], strict=True)))
    cpu = {
        is_on: statistics.median(sample.cpu_ms["server"] for sample in found)
        for is_on, found in samples.items()
    }
    middle = {is_on: statistics.median(found) for is_on, found in rates.items()}
    how = (
        f"{middle[True]:,.0f}/s of {middle[False]:,.0f}/s, medians of {rounds} samples each; "
        f"CPU of the server for a write {cpu[True]:.2f} ms, {cpu[False]:.2f} without"
    )
    run.figure("guard", lost, how)
    run.detail(
        "guard",
        without=[sample.details() for sample in samples[False]],
        guarded=[sample.details() for sample in samples[True]],
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
        written = await take_over(testbed, run, sharder, victim, len(orphans))
        await sharder.wait_idle()
    await set_owners(testbed, run, before)
    limits.append(await by_wrk(after, orphans))

    limit = mean_limit(limits)
    how = f"{written.per_s:,.0f}/s of {limit:,.0f}/s; {written.per_s_while_writing:,.0f}/s from the first write on"
    run.figure("takeover", 100 * written.per_s / limit, how)
    run.detail(
        "takeover",
        limit_per_s=round_off(limit),
        sharder=written.details(),
        wrk=[one.details() for one in limits],
    )


async def take_over(testbed: Testbed, run: Run, sharder: Sharder, victim: str, orphans: int) -> Writes:
    """The shard *victim* stops renewing, and its *orphans* get other owners."""
    seen, leases = testbed.observations, testbed.leases
    seen.start_over()
    leases.start_over()
    member = next(member for member, shard in testbed.stand_ins.shards.items() if shard == victim)
    testbed.stand_ins.kill(member)
    await wait_for(
        lambda: leases.taken_at(victim) is not None, "the Lease to be taken", within_s=6 * STAND_IN_LEASE_S
    )
    cores = cores_of(testbed, "sharder", sharder.pid)
    await run.follow("take-over of a dead shard", orphans, lambda: orphans - seen.owned[victim])
    changes = [change for change in seen.log if change.before == victim]
    return writes_of(leases.taken_at(victim) or 0.0, changes, cores)


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
    seen = testbed.observations
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
