"""Many handoffs at once: they wait for answers of the server, so no worker waits for them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from devcluster.embedded import Fault
from kubeio.resource import ApiResource

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
Bench = Any  # tests/shard_controller/conftest.py: fixtures cannot be imported
SITES = 24
SLOW_S = 0.4


async def test_handoffs_do_not_wait_for_each_other(bench: Bench) -> None:
    old = await bench.start("web-0", flags=("--workers", "1"))
    new = await bench.start("web-1")
    names = [f"site-{number}" for number in range(SITES)]
    for name in names:
        await bench.site(name, "publish hello", owner=old)
    await bench.until(lambda: all_have_pages(bench, names))
    await bench.plane.faults.add(
        Fault(what="latency", user="web-0", verb="patch", resource="websites.example.com", delay_s=SLOW_S)
    )
    began = time.monotonic()
    await asyncio.gather(*(bench.label(WEBSITES, name, drain=new.name) for name in names))
    await bench.until(lambda: all_belong_to(bench, names, new.name), within_s=SITES * SLOW_S)
    assert time.monotonic() - began < SITES * SLOW_S / 2, "one after the other would take twice as long"


async def all_have_pages(bench: Bench, names: list[str]) -> bool:
    return all([await bench.page(name) for name in names])


async def all_belong_to(bench: Bench, names: list[str], owner: str) -> bool:
    return all([await bench.owner(WEBSITES, name) == owner for name in names])
