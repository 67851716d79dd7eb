"""Handoffs: many at once, for which no worker waits, one that waits for a CREATE, and children that fail."""

from __future__ import annotations

import asyncio
import time

from devcluster.embedded import Fault
from tests.shard_controller.bench import Bench
from tests.shard_controller.objects import CONFIGMAPS, WEBSITES

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


async def test_an_object_is_kept_while_a_create_without_an_answer_may_arrive(bench: Bench) -> None:
    """Even if the controlled object is there: its next owner may delete it, and then the CREATE is carried out."""
    old = await bench.start("web-0", env={"ANSWER_WITHIN_S": "4"})
    new = await bench.start("web-1")
    await bench.plane.faults.add(
        Fault(what="lose_answer", user="web-0", verb="create", resource="configmaps", count=1)
    )
    began = time.monotonic()
    await bench.site("blog", "publish hello", owner=old)
    await bench.until(lambda: old.records("end"))
    assert await bench.page("blog")
    await bench.label(WEBSITES, "blog", drain=new.name)
    await bench.until(lambda: bench.owner(WEBSITES, "blog"), equals=new.name, within_s=15)
    assert time.monotonic() - began > 4
    assert old.logged("handoff waits for a create without an answer")


async def test_a_child_that_cannot_be_handed_over_stops_no_other(bench: Bench) -> None:
    """Children of an object that belongs to another shard already: they are noted together, and fail together."""
    old, new = await bench.start("web-0"), await bench.start("web-1")
    root = await bench.site("blog", "ready", owner=new)
    names = [f"page-{number}" for number in range(4)]
    for name in names:
        await bench.configmap(name, controller=root, owner=old.name)
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", verb="patch", resource="configmaps", for_s=1)
    )
    await asyncio.gather(*(bench.label(CONFIGMAPS, name, drain=new.name) for name in names))

    async def owners() -> set[str]:
        return {await bench.owner(CONFIGMAPS, name) for name in names}

    await bench.until(owners, equals={new.name})
