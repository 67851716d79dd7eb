"""What a rebalance says: a log that fits on a page, each late owner named once, nothing that is no longer true."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from devcluster.faults import Fault
from tests.sharder.io.environment import (
    SharderEnvironment,
    belonging_to,
    eventually,
    is_balanced,
    places,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on

OBJECTS = 200


async def test_the_log_of_a_rebalance_fits_on_a_page(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(OBJECTS)
    expected = places("ab", [f"site-{n}" for n in range(OBJECTS)])
    with capture_logs() as lines:
        async with env.sharder(), owners_that_pass_on(env):
            await env.until_balanced()
            await env.shard("b")

            async def moved() -> bool:
                return await env.owners() == expected and await is_balanced(env)

            await wait_until(moved, within_s=20)
    reported = [line for line in lines if line["log_level"] != "debug"]
    assert len(reported) <= 40, [line["event"] for line in reported]
    assert not any("site-" in str(line) for line in reported), "no line is about one object"
    assert {"ring changed", "ring converged"} <= {line["event"] for line in reported}


async def test_an_owner_that_is_late_with_many_handoffs_is_named_once(env: SharderEnvironment) -> None:
    await env.ring(drainTimeoutSeconds=1, maxInFlight=3)
    stuck = await env.shard("a")
    names = belonging_to("b", "ab", 12)
    await env.sites_of(stuck, names)
    await env.shard("b")
    with capture_logs() as lines:
        async with env.sharder():
            await eventually(env.drains, lambda drains: set(drains) == set(names), within_s=20)
            await env.until_condition("DrainStuck", says=f"{stuck.name} (12)")
            await env.acknowledge_all()
            await env.until_balanced(within_s=20)
            assert (await env.condition("DrainStuck"))["status"] == "False"
    late = [line for line in lines if line["event"] == "handoffs overdue"]
    assert [line["shard"] for line in late] == [stuck.name]
    assert any(line["event"] == "handoffs no longer overdue" for line in lines)


async def test_a_handoff_that_ended_while_no_watch_showed_it_is_not_late_for_ever(
    env: SharderEnvironment,
) -> None:
    """Asked for and answered behind a dead watch, and then the server forgot what happened."""
    await env.ring(drainTimeoutSeconds=2)
    a = await env.shard("a")
    names = belonging_to("b", "ab", 3)
    await env.sites_of(a, names)
    async with env.sharder():
        await env.until_balanced()
        await env.plane.faults.add(
            Fault(what="mute_watches", resource="websites.example.com", user="sharder-1")
        )
        await env.shard("b")
        await eventually(env.drains, lambda drains: set(drains) == set(names))
        await env.acknowledge_all()
        await env.plane.faults.clear()
        await env.plane.restart()
        await asyncio.sleep(4.0)
        await env.until_balanced()
        assert (await env.condition("DrainStuck"))["status"] == "False"
        assert (await env.status())["inFlight"] == 0
