"""One resource of a ring fails (5xx, a conversion webhook): the others are assigned, taken over and shared as ever."""

from __future__ import annotations

from devcluster.faults import Fault
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    ONLY_SECRETS,
    SECRETS,
    SITES_WITH_PAGES,
    SharderEnvironment,
    belonging_to,
    eventually,
)
from tests.sharder.io.owners import owners_that_pass_on

WORDS = "conversion webhook for v1, Kind=Secret failed: connection refused"


async def test_a_resource_whose_patches_fail_is_tried_once_in_a_while_and_the_others_go_on(
    env: SharderEnvironment,
) -> None:
    await env.plane.faults.add(
        Fault(what="error", code=500, user="sharder-1", verb="patch", resource="secrets", message=WORDS)
    )
    await env.ring(resources=[*ONLY_SECRETS, SITES_WITH_PAGES])
    await env.shard("a")
    for number in range(100):
        await env.make(SECRETS, f"secret-{number}")
    async with env.sharder():
        reported = "patch secrets in namespace default: "
        await env.until_condition("Ready", reason="ResourceFails", says=reported, within_s=25)
        await env.until_condition("Ready", reason="ResourceFails", says=WORDS)
        (before,) = [fault.hits for fault in await env.plane.faults.active()]
        await env.site("one")
        await eventually(env.owners, lambda owners: owners["one"] != "")
        (after,) = [fault.hits for fault in await env.plane.faults.active()]
        assert after - before <= 3, "one in five seconds"
        await env.plane.faults.clear()
        await eventually(lambda: env.owners(SECRETS), lambda owners: "" not in owners.values(), within_s=25)
        await env.until_condition("Ready", status="True", within_s=25)


async def test_a_resource_that_cannot_be_listed_stops_neither_take_over_nor_rebalancing(
    env: SharderEnvironment,
) -> None:
    await env.plane.faults.add(
        Fault(what="error", code=500, user="sharder-1", verb="list", resource="secrets", message=WORDS)
    )
    await env.ring(resources=[*ONLY_SECRETS, SITES_WITH_PAGES])
    await env.join("abc")
    misplaced = belonging_to("b", "abc", 1)[0]
    await env.site(misplaced, labels={KEYS.shard: "a-00000001"})
    await env.make(CONFIGMAPS, "page")
    orphan = belonging_to("c", "abc", 1)[0]
    await env.site(orphan)
    async with owners_that_pass_on(env), env.sharder():
        await eventually(env.owners, {misplaced: "b-00000001", orphan: "c-00000001"}, within_s=25)
        await env.shards[2].fall_silent()
        await eventually(env.owners, lambda owners: owners[orphan] in ("a-00000001", "b-00000001"))
        await env.until_condition("Ready", reason="ResourceFails", says=WORDS, within_s=25)
        await env.plane.faults.clear()
        await env.make(SECRETS, "late")
        await eventually(lambda: env.owners(SECRETS), lambda owners: owners["late"] != "", within_s=25)
        await env.until_condition("Ready", status="True", within_s=25)
