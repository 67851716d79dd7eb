"""A replica's memory does not follow the number of changes that it has seen. `make endurance`: 100,000 of them."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any, Final

from tests.shard_controller.bench import Bench

SITES: Final = 300
UNDER_WAY: Final = 24
WARM_UP: Final = 4_000
"""Changes after which buffers, caches and the allocator have what they need."""
CHANGES: Final = int(os.environ.get("RINGLEADER_CHANGES", "8000"))
GROWTH_MB: Final = 2.0
"""Of pages that the allocator has not given back; 20 bytes for each of 100,000 changes."""


async def test_memory_does_not_grow_with_changes(bench: Bench) -> None:
    shard = await bench.start("web-0", duration_s=15, warm=False)
    names = [f"site-{number:03d}" for number in range(SITES)]
    for name in names:
        await bench.site(name, "sleep 0", owner=shard)
    numbers = itertools.count()
    await change(bench, names, numbers, WARM_UP)
    await settled(bench, shard, numbers)
    before_mb = rss_mb(shard.pid)
    await change(bench, names, numbers, CHANGES)
    await settled(bench, shard, numbers)
    after_mb = rss_mb(shard.pid)
    print(f"{before_mb:.1f} MB after {WARM_UP:,} changes, {after_mb:.1f} MB after {CHANGES:,} more")
    assert after_mb - before_mb < GROWTH_MB


async def change(bench: Bench, names: list[str], numbers: Any, count: int) -> None:
    """Change the sites in turns, *count* times in all; each asks to be looked at again some day."""
    left = iter(range(count))

    async def sender() -> None:
        for _ in left:
            number = next(numbers)
            await bench.edit(names[number % len(names)], f"sleep 0\nrequeue {1000 + number % 500}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(UNDER_WAY):
            tasks.create_task(sender())


async def settled(bench: Bench, shard: Any, numbers: Any) -> None:
    """Until the last version of one site, changed last, was reconciled."""
    text = f"sleep 0\nrequeue {2000 + next(numbers)}"
    version = (await bench.edit("site-000", text))["metadata"]["resourceVersion"]
    await bench.until(
        lambda: version in [record["rv"] for record in shard.reconciles("site-000")[-3:]], within_s=60
    )


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
