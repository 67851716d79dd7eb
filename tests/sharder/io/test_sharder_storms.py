"""The API server is slow, refuses, restarts and forgets: the work is delayed, never wrong, and ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane, Write
from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch, MergePatch
from ring import HashRing
from ring.key import object_key
from tests.sharder.io.ground import KEYS, WEBSITES, Ground, is_balanced, open_ground, wait_until
from tests.sharder.io.owners import owners_that_pass_on

SHARDER = "sharder-1"
SITES = 150
pytestmark = [pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def ground(faulty_plane: ControlPlane) -> AsyncIterator[Ground]:
    async with open_ground(faulty_plane, cleared=True) as ground:
        yield ground


def places(members: str, *, count: int = SITES) -> dict[str, str]:
    """Where each site belongs."""
    ring = HashRing(list(members))
    keys = {f"site-{n}": object_key("example.com", "default", f"site-{n}") for n in range(count)}
    return {name: f"{ring.owner(key)}-00000001" for name, key in keys.items()}


async def at_their_places(ground: Ground, members: str, *, count: int = SITES) -> bool:
    return await ground.owners() == places(members, count=count)


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
    for member in "ab":
        await ground.shard(member, duration_s=10)
    await ground.sites(SITES)
    throttle = Fault(what="error", user=SHARDER, code=429, retry_after_s=1, for_s=6)
    await ground.plane.faults.add(throttle)
    async with ground.sharder(SHARDER):
        await asyncio.sleep(5.5)
        refused = (await ground.plane.faults.active())[0].hits
        await wait_until(lambda: at_their_places(ground, "ab"), within_s=15)
    assert 1 <= refused <= 150, f"{refused} requests to a server that asked for a second's peace each time"


async def test_a_server_that_fails_everything_for_a_while_loses_nothing(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    for member in "ab":
        await ground.shard(member, duration_s=10)
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(SITES)
        await wait_until(lambda: at_their_places(ground, "ab"))
        await ground.plane.faults.add(Fault(what="error", user=SHARDER, code=500, for_s=5))
        before = len(ground.writes())
        await ground.shard("c", duration_s=10)
        await wait_until(lambda: at_their_places(ground, "abc"), within_s=30)
        moved = changes(ground.writes()[before:])
    assert set(moved.values()) == {1}


async def test_watches_closed_every_second_hold_up_no_object(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    async with ground.sharder(SHARDER), asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(_close_watches(ground))
        for number in range(60):
            await ground.site(f"site-{number}")
            await asyncio.sleep(0.1)
        await wait_until(lambda: at_their_places(ground, "ab", count=60), within_s=15)
        closing.cancel()
    assert set(changes(ground.writes()).values()) == {1}


async def _close_watches(ground: Ground) -> None:
    while True:
        await asyncio.sleep(1)
        await ground.plane.faults.add(Fault(what="cut", verb="watch", user=SHARDER, for_s=0.2))


async def test_a_server_that_restarts_again_and_again_in_mid_rebalance_moves_nothing_twice(
    ground: Ground,
) -> None:
    """Each restart drops connections and history: every watch meets 410 and lists anew."""
    await ground.ring(maxInFlight=20, maxLeaseDurationSeconds=10)
    for member in "ab":
        await ground.shard(member, duration_s=8)
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(SITES)
        await wait_until(lambda: at_their_places(ground, "ab"))
        await ground.plane.faults.add(
            Fault(what="latency", verb="patch", resource="websites.example.com", delay_s=0.3)
        )
        before = len(ground.writes())
        await ground.shard("c", duration_s=8)
        await wait_until(lambda: len(changes(ground.writes()[before:])) >= 5)
        for _ in range(3):
            await ground.plane.restart(away_s=0.5)
            await asyncio.sleep(0.7)
        assert not await at_their_places(ground, "abc"), "all had moved before: the test proves nothing"
        await ground.plane.faults.clear()
        await wait_until(lambda: at_their_places(ground, "abc"), within_s=45)
        moved = changes(ground.writes()[before:])
    belongs = places("abc")
    assert set(moved) == {name for name, shard in places("ab").items() if belongs[name] != shard}
    assert set(moved.values()) == {1}


async def test_a_server_that_takes_half_a_second_for_everything_is_waited_for(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    for member in "ab":
        await ground.shard(member, duration_s=6)
    await ground.plane.faults.add(Fault(what="latency", delay_s=0.5))
    async with ground.sharder(SHARDER):
        for number in range(20):
            await ground.site(f"site-{number}")
        await wait_until(lambda: at_their_places(ground, "ab", count=20), within_s=30)
        await asyncio.sleep(3)
        assert await at_their_places(ground, "ab", count=20)
    assert set(changes(ground.writes()).values()) == {1}
    assert {await shard.holder() for shard in ground.shards} == {"a-00000001", "b-00000001"}


@pytest.mark.parametrize("value", ["b-00000001", "nobody-00000001", "Not.A.Name", "a-00000001", ""])
async def test_a_drain_label_set_by_hand_ends_where_the_ring_wants_the_object(
    ground: Ground, value: str
) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(20)
        await wait_until(lambda: at_their_places(ground, "ab", count=20))
        names = sorted(name for name, shard in places("ab", count=20).items() if shard == "a-00000001")
        patch = MergePatch({"metadata": {"labels": {KEYS.drain: value}}})
        await ground.client.patch(WEBSITES, names[0], patch, namespace="default", type=bytes)

        async def is_put_right() -> bool:
            return not await ground.drains() and await at_their_places(ground, "ab", count=20)

        await wait_until(is_put_right, within_s=20)


async def test_an_object_that_was_passed_on_before_its_forged_request_was_corrected_comes_back(
    ground: Ground,
) -> None:
    """No watch shows what has a live owner: the sharder has to remember that it came too late."""
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    async with ground.sharder(SHARDER), owners_that_pass_on(ground):
        await ground.sites(20)
        await wait_until(lambda: at_their_places(ground, "ab", count=20))
        names = sorted(name for name, shard in places("ab", count=20).items() if shard == "a-00000001")
        slow = Fault(
            what="latency",
            user=SHARDER,
            verb="patch",
            resource="websites.example.com",
            delay_s=1.0,
            for_s=3,
        )
        await ground.plane.faults.add(slow)
        patch = MergePatch({"metadata": {"labels": {KEYS.drain: "b-00000001"}}})
        await ground.client.patch(WEBSITES, names[0], patch, namespace="default", type=bytes)

        async def is_passed_on() -> bool:
            return (await ground.owners())[names[0]] == "b-00000001"

        await wait_until(is_passed_on)
        await wait_until(lambda: at_their_places(ground, "ab", count=20), within_s=20)


async def test_throttled_patches_pause_all_patches(ground: Ground) -> None:
    """The server names no object when it says 429: everybody who writes waits."""
    await ground.ring(maxLeaseDurationSeconds=10)
    await ground.shard("a", duration_s=10)
    await ground.sites(SITES)
    throttle = Fault(
        what="error",
        user=SHARDER,
        verb="patch",
        resource="websites.example.com",
        code=429,
        retry_after_s=1,
    )
    await ground.plane.faults.add(throttle)
    async with ground.sharder(SHARDER):
        await asyncio.sleep(3.8)
        refused = (await ground.plane.faults.active())[0].hits
        await ground.plane.faults.clear()
        await wait_until(lambda: at_their_places(ground, "a"), within_s=15)
    assert 1 <= refused <= 2 * SITES, f"{refused} patches were refused in four seconds"


async def test_a_drain_label_removed_by_hand_is_set_again(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder(SHARDER):
        await ground.sites(20)
        await wait_until(lambda: is_balanced(ground))
        await ground.shard("b")
        wanted = {name for name, shard in places("ab", count=20).items() if shard == "b-00000001"}

        async def asked() -> bool:
            return set(await ground.drains()) == wanted

        await wait_until(asked)
        lost = sorted(wanted)[0]
        patch = JsonPatch().remove(json_pointer("metadata", "labels", KEYS.drain))
        await ground.client.patch(WEBSITES, lost, patch, namespace="default", type=bytes)
        await wait_until(asked, within_s=15)
        async with owners_that_pass_on(ground):
            await wait_until(lambda: at_their_places(ground, "ab", count=20))
