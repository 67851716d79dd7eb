"""The API server is slow, refuses, restarts and forgets: the work is delayed, never wrong, and ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane, Write
from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch
from tests.sharder.io.environment import (
    KEYS,
    WEBSITES,
    SharderEnvironment,
    belonging_to,
    eventually,
    open_environment,
    places,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on

SHARDER = "sharder-1"
SITES = 150
PATCHES: dict[str, Any] = {"user": SHARDER, "verb": "patch", "resource": "websites.example.com"}
pytestmark = [pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def env(faulty_plane: ControlPlane) -> AsyncIterator[SharderEnvironment]:
    async with open_environment(faulty_plane, cleared=True) as env:
        yield env


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


async def test_a_server_that_throttles_everything_is_left_alone_and_then_served(
    env: SharderEnvironment,
) -> None:
    """429 with Retry-After for six seconds: no storm of requests, and all is done soon afterwards."""
    await env.ring(maxLeaseDurationSeconds=10)
    await env.join("ab", duration_s=10)
    await env.sites(SITES)
    throttle = Fault(what="error", user=SHARDER, code=429, retry_after_s=1, for_s=6)
    await env.plane.faults.add(throttle)
    async with env.sharder(SHARDER):
        await asyncio.sleep(5.5)
        refused = (await env.plane.faults.active())[0].hits
        await eventually(env.owners, at("ab"), within_s=15)
    assert 1 <= refused <= 150, f"{refused} requests to a server that asked for a second's peace each time"


async def test_a_server_that_fails_everything_for_a_while_loses_nothing(env: SharderEnvironment) -> None:
    await env.ring(maxLeaseDurationSeconds=10)
    await env.join("ab", duration_s=10)
    async with env.sharder(SHARDER), owners_that_pass_on(env):
        await env.sites(SITES)
        await eventually(env.owners, at("ab"))
        await env.plane.faults.add(Fault(what="error", user=SHARDER, code=500, for_s=5))
        before = len(env.writes())
        await env.shard("c", duration_s=10)
        await eventually(env.owners, at("abc"), within_s=30)
        moved = changes(env.writes()[before:])
    assert set(moved.values()) == {1}


async def test_watches_closed_every_second_hold_up_no_object(env: SharderEnvironment) -> None:
    await env.ring()
    await env.join("ab")
    async with env.sharder(SHARDER), asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(_close_watches(env))
        for number in range(60):
            await env.site(f"site-{number}")
            await asyncio.sleep(0.1)
        await eventually(env.owners, at("ab", count=60), within_s=15)
        closing.cancel()
    assert set(changes(env.writes()).values()) == {1}


async def _close_watches(env: SharderEnvironment) -> None:
    while True:
        await asyncio.sleep(1)
        await env.plane.faults.add(Fault(what="cut", verb="watch", user=SHARDER, for_s=0.2))


async def test_a_server_that_restarts_again_and_again_in_mid_rebalance_moves_nothing_twice(
    env: SharderEnvironment,
) -> None:
    """Each restart drops connections and history: every watch meets 410 and lists anew."""
    await env.ring(maxInFlight=20, maxLeaseDurationSeconds=10)
    await env.join("ab", duration_s=8)
    async with env.sharder(SHARDER), owners_that_pass_on(env):
        await env.sites(SITES)
        await eventually(env.owners, at("ab"))
        await env.plane.faults.add(
            Fault(what="latency", verb="patch", resource="websites.example.com", delay_s=0.3)
        )
        before = len(env.writes())
        await env.shard("c", duration_s=8)
        await wait_until(lambda: len(changes(env.writes()[before:])) >= 5)
        for _ in range(3):
            await env.plane.restart(away_s=0.5)
            await asyncio.sleep(0.7)
        assert await env.owners() != at("abc"), "all had moved before: the test proves nothing"
        await env.plane.faults.clear()
        await eventually(env.owners, at("abc"), within_s=45)
        moved = changes(env.writes()[before:])
    assert moved == {name: 1 for name, shard in at("ab").items() if at("abc")[name] != shard}


async def test_a_server_that_takes_half_a_second_for_everything_is_waited_for(
    env: SharderEnvironment,
) -> None:
    await env.ring(maxLeaseDurationSeconds=10)
    await env.join("ab", duration_s=6)
    await env.plane.faults.add(Fault(what="latency", delay_s=0.5))
    async with env.sharder(SHARDER):
        for number in range(20):
            await env.site(f"site-{number}")
        await eventually(env.owners, at("ab", count=20), within_s=30)
        await asyncio.sleep(3)
        assert await env.owners() == at("ab", count=20)
    assert set(changes(env.writes()).values()) == {1}
    assert {await shard.holder() for shard in env.shards} == {"a-00000001", "b-00000001"}


async def test_a_drain_label_set_by_hand_ends_where_the_ring_wants_the_object(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    await env.join("ab")
    async with env.sharder(SHARDER), owners_that_pass_on(env):
        await env.sites(20)
        await eventually(env.owners, at("ab", count=20))
        values = ("b-00000001", "nobody-00000001", "Not.A.Name", "a-00000001", "")
        for name, value in zip(belonging_to("a", "ab", 5), values, strict=True):
            await env.patch(WEBSITES, name, {"metadata": {"labels": {KEYS.drain: value}}})
        await eventually(env.drains, {}, within_s=20)
        await eventually(env.owners, at("ab", count=20), within_s=20)


async def test_an_object_that_was_passed_on_before_its_forged_request_was_corrected_comes_back(
    env: SharderEnvironment,
) -> None:
    """No watch shows what has a live owner: the sharder has to remember that it came too late."""
    await env.ring()
    await env.join("ab")
    async with env.sharder(SHARDER), owners_that_pass_on(env):
        await env.sites(20)
        await eventually(env.owners, at("ab", count=20))
        (name,) = belonging_to("a", "ab", 1)
        await env.plane.faults.add(Fault(what="latency", **PATCHES, delay_s=1.0, for_s=3))
        await env.patch(WEBSITES, name, {"metadata": {"labels": {KEYS.drain: "b-00000001"}}})
        await eventually(env.owners, lambda owners: owners[name] == "b-00000001")
        await eventually(env.owners, at("ab", count=20), within_s=20)


async def test_a_drain_label_removed_by_hand_is_set_again(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    async with env.sharder(SHARDER):
        await env.sites(20)
        await env.until_balanced()
        await env.shard("b")
        wanted = {name: shard for name, shard in at("ab", count=20).items() if shard == "b-00000001"}
        await eventually(env.drains, wanted)
        lost = sorted(wanted)[0]
        patch = JsonPatch().remove(json_pointer("metadata", "labels", KEYS.drain))
        await env.client.patch(WEBSITES, lost, patch, namespace="default", type=bytes)
        await eventually(env.drains, wanted, within_s=15)
        async with owners_that_pass_on(env):
            await eventually(env.owners, at("ab", count=20))
