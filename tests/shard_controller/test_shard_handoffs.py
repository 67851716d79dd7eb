"""Many handoffs at once: they wait for answers of the server, so no worker waits for them."""

from __future__ import annotations

import asyncio
import time

from devcluster.embedded import Fault
from tests.shard_controller.bench import Bench
from tests.shard_controller.objects import WEBSITES

SITES = 24
SLOW_S = 0.4


async def test_handoffs_do_not_wait_for_each_other(bench: Bench) -> None:
    old = await bench.start("web-0", flags=("--workers", "1"))
    new = await bench.start("web-1")
    names = [f"site-{number}" for number in range(SITES)]

    async def every_page() -> bool:
        return all([await bench.page(name) for name in names])

    async def every_owner() -> set[str]:
        return {await bench.owner(WEBSITES, name) for name in names}

    for name in names:
        await bench.site(name, "publish hello", owner=old)
    await bench.until(every_page)
    await bench.plane.faults.add(
        Fault(what="latency", user="web-0", verb="patch", resource="websites.example.com", delay_s=SLOW_S)
    )
    began = time.monotonic()
    await asyncio.gather(*(bench.label(WEBSITES, name, drain=new.name) for name in names))
    await bench.until(every_owner, equals={new.name}, within_s=SITES * SLOW_S)
    assert time.monotonic() - began < SITES * SLOW_S / 2, "one after the other would take twice as long"
