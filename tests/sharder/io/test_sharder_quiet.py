"""What a rebalance says: a log that fits on a page, each late owner named once, nothing that is no longer true."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from devcluster.faults import Fault
from tests.sharder.io.ground import Ground, belonging_to, eventually, is_balanced, places, wait_until
from tests.sharder.io.owners import owners_that_pass_on

OBJECTS = 200


async def test_the_log_of_a_rebalance_fits_on_a_page(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(OBJECTS)
    expected = places("ab", [f"site-{n}" for n in range(OBJECTS)])
    with capture_logs() as lines:
        async with ground.sharder(), owners_that_pass_on(ground):
            await ground.until_balanced()
            await ground.shard("b")

            async def moved() -> bool:
                return await ground.owners() == expected and await is_balanced(ground)

            await wait_until(moved, within_s=20)
    reported = [line for line in lines if line["log_level"] != "debug"]
    assert len(reported) <= 40, [line["event"] for line in reported]
    assert not any("site-" in str(line) for line in reported), "no line is about one object"
    assert {"ring changed", "ring converged"} <= {line["event"] for line in reported}


async def test_an_owner_that_is_late_with_many_handoffs_is_named_once(ground: Ground) -> None:
    await ground.ring(drainTimeoutSeconds=1, maxInFlight=3)
    stuck = await ground.shard("a")
    names = belonging_to("b", "ab", 12)
    await ground.sites_of(stuck, names)
    await ground.shard("b")
    with capture_logs() as lines:
        async with ground.sharder():
            await eventually(ground.drains, lambda drains: set(drains) == set(names), within_s=20)
            await ground.until_condition("DrainStuck", says=f"{stuck.name} (12)")
            await ground.acknowledge_all()
            await ground.until_balanced(within_s=20)
            assert (await ground.condition("DrainStuck"))["status"] == "False"
    late = [line for line in lines if line["event"] == "handoffs overdue"]
    assert [line["shard"] for line in late] == [stuck.name]
    assert any(line["event"] == "handoffs no longer overdue" for line in lines)


async def test_a_handoff_that_ended_while_no_watch_showed_it_is_not_late_for_ever(ground: Ground) -> None:
    """Asked for and answered behind a dead watch, and then the server forgot what happened."""
    await ground.ring(drainTimeoutSeconds=2)
    a = await ground.shard("a")
    names = belonging_to("b", "ab", 3)
    await ground.sites_of(a, names)
    async with ground.sharder():
        await ground.until_balanced()
        await ground.plane.faults.add(
            Fault(what="mute_watches", resource="websites.example.com", user="sharder-1")
        )
        await ground.shard("b")
        await eventually(ground.drains, lambda drains: set(drains) == set(names))
        await ground.acknowledge_all()
        await ground.plane.faults.clear()
        await ground.plane.restart()
        await asyncio.sleep(4.0)
        await ground.until_balanced()
        assert (await ground.condition("DrainStuck"))["status"] == "False"
        assert (await ground.status())["inFlight"] == 0
