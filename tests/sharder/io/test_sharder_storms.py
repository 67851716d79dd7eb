"""The API server is slow, refuses, restarts and forgets: the work is delayed, never wrong, and ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from devcluster.embedded.faults import Fault
from devcluster.plane import Write
from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch
from tests.sharder.io.ground import KEYS, WEBSITES, Ground, belonging_to, eventually, places, wait_until
from tests.sharder.io.owners import owners_that_pass_on

SHARDER = "sharder-1"
SITES = 150
PATCHES: dict[str, Any] = {"user": SHARDER, "verb": "patch", "resource": "websites.example.com"}


def at(members: str, *, count: int = SITES) -> dict[str, str]:
    """The owner of each site when it is at its place."""
    return places(members, [f"site-{n}" for n in range(count)])


def changes(writes: list[Write]) -> Counter[str]:
    """How often each site's owner changed."""
    return Counter(
        write.name
        for write in writes
        if write.resource == WEBSITES.group_resource
        and write.code == 200
        and (write.labels_before or {}).get(KEYS.shard) != (write.labels_after or {}).get(KEYS.shard)
    )


async def test_a_server_that_throttles_everything_is_left_alone_and_then_served(ground: Ground) -> None:
    """429 with Retry-After for six seconds: no storm of requests, and all is done soon afterwards."""
    await ground.ring(maxLeaseDurationSeconds=10)
    await ground.join("ab", duration_s=10)
    await ground.sites(SITES)
    throttle = Fault(what="error", user=SHARDER, code=429, retry_after_s=1, for_s=6)
    await ground.plane.faults.add(throttle)
    async with ground.sharder(SHARDER):
        await asyncio.sleep(5.5)
        refused = (await ground.plane.faults.active())[0].hits
        await eventually(ground.owners, at("ab"), within_s=15)
    assert 1 <= refused <= 150, f"{refused} requests to a server that asked for a second's peace each time"


async def test_a_server_that_fails_everything_for_a_while_loses_nothing(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    await ground.join("ab", duration_s=10)
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(SITES)
        await eventually(ground.owners, at("ab"))
        await ground.plane.faults.add(Fault(what="error", user=SHARDER, code=500, for_s=5))
        before = len(ground.plane.writes())
        await ground.shard("c", duration_s=10)
        await eventually(ground.owners, at("abc"), within_s=30)
        moved = changes(ground.plane.writes()[before:])
    assert set(moved.values()) == {1}


async def test_watches_closed_every_second_hold_up_no_object(ground: Ground) -> None:
    await ground.ring()
    await ground.join("ab")
    async with ground.sharder(SHARDER), asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(_close_watches(ground))
        for number in range(60):
            await ground.site(f"site-{number}")
            await asyncio.sleep(0.1)
        await eventually(ground.owners, at("ab", count=60), within_s=15)
        closing.cancel()
    assert set(changes(ground.plane.writes()).values()) == {1}


async def _close_watches(ground: Ground) -> None:
    while True:
        await asyncio.sleep(1)
        await ground.plane.faults.add(Fault(what="drop_watches", user=SHARDER, for_s=0.2))


async def test_a_server_that_restarts_again_and_again_in_mid_rebalance_moves_nothing_twice(
    ground: Ground,
) -> None:
    """Each restart drops connections and history: every watch meets 410 and lists anew."""
    await ground.ring(maxInFlight=20, maxLeaseDurationSeconds=10)
    await ground.join("ab", duration_s=8)
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(SITES)
        await eventually(ground.owners, at("ab"))
        await ground.plane.faults.add(
            Fault(what="latency", verb="patch", resource="websites.example.com", delay_s=0.3)
        )
        before = len(ground.plane.writes())
        await ground.shard("c", duration_s=8)
        await wait_until(lambda: len(changes(ground.plane.writes()[before:])) >= 5)
        for _ in range(3):
            await ground.plane.restart(away_s=0.5)
            await asyncio.sleep(0.7)
        assert await ground.owners() != at("abc"), "all had moved before: the test proves nothing"
        await ground.plane.faults.clear()
        await eventually(ground.owners, at("abc"), within_s=45)
        moved = changes(ground.plane.writes()[before:])
    assert moved == {name: 1 for name, shard in at("ab").items() if at("abc")[name] != shard}


async def test_a_server_that_takes_half_a_second_for_everything_is_waited_for(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    await ground.join("ab", duration_s=6)
    await ground.plane.faults.add(Fault(what="latency", delay_s=0.5))
    async with ground.sharder(SHARDER):
        for number in range(20):
            await ground.site(f"site-{number}")
        await eventually(ground.owners, at("ab", count=20), within_s=30)
        await asyncio.sleep(3)
        assert await ground.owners() == at("ab", count=20)
    assert set(changes(ground.plane.writes()).values()) == {1}
    assert {await shard.holder() for shard in ground.shards} == {"a-00000001", "b-00000001"}


async def test_a_drain_label_set_by_hand_ends_where_the_ring_wants_the_object(ground: Ground) -> None:
    await ground.ring()
    await ground.join("ab")
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(20)
        await eventually(ground.owners, at("ab", count=20))
        values = ("b-00000001", "nobody-00000001", "Not.A.Name", "a-00000001", "")
        for name, value in zip(belonging_to("a", "ab", 5), values, strict=True):
            await ground.patch(WEBSITES, name, {"metadata": {"labels": {KEYS.drain: value}}})
        await eventually(ground.drains, {}, within_s=20)
        await eventually(ground.owners, at("ab", count=20), within_s=20)


async def test_an_object_that_was_passed_on_before_its_forged_request_was_corrected_comes_back(
    ground: Ground,
) -> None:
    """No watch shows what has a live owner: the sharder has to remember that it came too late."""
    await ground.ring()
    await ground.join("ab")
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(20)
        await eventually(ground.owners, at("ab", count=20))
        (name,) = belonging_to("a", "ab", 1)
        await ground.plane.faults.add(Fault(what="latency", **PATCHES, delay_s=1.0, for_s=3))
        await ground.patch(WEBSITES, name, {"metadata": {"labels": {KEYS.drain: "b-00000001"}}})
        await eventually(ground.owners, lambda owners: owners[name] == "b-00000001")
        await eventually(ground.owners, at("ab", count=20), within_s=20)


async def test_a_drain_label_removed_by_hand_is_set_again(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder(SHARDER):
        await ground.sites(20)
        await ground.until_balanced()
        await ground.shard("b")
        wanted = {name: shard for name, shard in at("ab", count=20).items() if shard == "b-00000001"}
        await eventually(ground.drains, wanted)
        lost = sorted(wanted)[0]
        patch = JsonPatch().remove(json_pointer("metadata", "labels", KEYS.drain))
        await ground.client.patch(WEBSITES, lost, patch, namespace="default", type=bytes)
        await eventually(ground.drains, wanted, within_s=15)
        async with owners_that_pass_on(ground):
            await eventually(ground.owners, at("ab", count=20))
