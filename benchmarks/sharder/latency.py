"""One new object on an idle ring: how long after its creation returned it has its owner."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import wait_for
from benchmarks.measuring.stock import document
from benchmarks.sharder.fleet import sharding
from benchmarks.sharder.goals import figure
from benchmarks.sharder.ground import Ground
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import own_by_stand_ins
from loadtest.quantiles import percentile

_PAUSE_S: Final = (0.02, 0.08)
"""Between one object and the next: never in step with anything."""


async def measure_new_objects(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """Create one object after the other; the watch sees when each is given to a shard."""
    await own_by_stand_ins(ground, meter)
    async with sharding(ground, peaks, row="new") as sharder:
        await sharder.wait_idle()
        waits_ms = await _waits_ms(ground, meter, options.samples)
    p50, p99 = percentile(waits_ms, 0.5), percentile(waits_ms, 0.99)
    how = f"{len(waits_ms)} samples, at most {max(waits_ms):.1f} ms"
    return Row(
        key="new",
        figures=[figure("new-p50", p50, how), figure("new-p99", p99, how)],
        details={"waits_ms": [round(wait, 2) for wait in waits_ms]},
    )


async def _waits_ms(ground: Ground, meter: Meter, samples: int) -> list[float]:
    seen = ground.sightings
    seen.start_over()
    rng = random.Random(1)  # noqa: S311 - pauses, no secret
    created_at: dict[str, float] = {}
    with meter.counting("one new object on an idle ring", samples) as tick:
        for index in range(samples):
            name = f"new-{index:04d}"
            created_at[name] = await create(ground, name)
            await wait_for(partial(seen.owner_of, name), f"{name} to be assigned", within_s=30)
            tick(1)
            await asyncio.sleep(rng.uniform(*_PAUSE_S))
    waits = [(change.at - created_at[change.name]) * 1000 for change in seen.log if change.name in created_at]
    await delete(ground, list(created_at))
    return waits


async def create(ground: Ground, name: str) -> float:
    """Create an object beside the stock; when that returned."""
    body = document(ground.resource, ground.spec.namespace, name)
    await ground.client.create(ground.resource, body, namespace=ground.spec.namespace, type=bytes)
    return ground.clock.now()


async def delete(ground: Ground, names: list[str]) -> None:
    """Delete objects beside the stock, and wait until the watch has seen it."""
    for name in names:
        await ground.client.delete(ground.resource, name, namespace=ground.spec.namespace)
    objects = ground.sightings.objects
    await wait_for(lambda: objects.keys().isdisjoint(names), "the new objects to be gone", within_s=30)
