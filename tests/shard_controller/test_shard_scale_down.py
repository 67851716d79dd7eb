"""A replica that its StatefulSet scaled away leaves, any other one is rolled (protocol 5.10). Real processes, and no
sharder: the tests write the labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.embedded import Fault
from kubeio.resource import LEASES
from kubeio.shard.heartbeat import LOST_LEASE_EXIT
from kubeio.shard.scale_down import QUESTION_TIMEOUT_S, STOP_S, is_scaled_away
from ringleader.testing.client import IndependentClient
from tests.shard_controller.bench import NAMESPACE, Bench, Shard
from tests.shard_controller.objects import KEYS, WEBSITES
from tests.stateful_sets import scale, serve_stateful_sets

WITHIN_S = 30.0
LONG_S, SHORT_S = 600.0, STOP_S + 2


@pytest.fixture
async def admin(bench: Bench) -> AsyncIterator[IndependentClient]:
    async with IndependentClient(bench.plane.kubeconfig) as client:
        await serve_stateful_sets(client)
        yield client


async def start(bench: Bench, member: str, *, grace_s: float = LONG_S) -> Shard:
    """A replica as the chart starts it."""
    env = {"POD_NAMESPACE": NAMESPACE, "POD_NAME": member}
    return await bench.start(member, env=env, flags=("--hold", "--termination-grace-period", f"{grace_s:g}"))


async def marks(bench: Bench, shard: Shard) -> dict[str, str]:
    return dict((await bench.lease(shard))["metadata"]["annotations"])


async def is_leaving(bench: Bench, shard: Shard) -> bool:
    return (await marks(bench, shard)).get(KEYS.leaving) == "true"


async def released_without_hold(bench: Bench, shard: Shard) -> bool:
    return await bench.holder(shard) == "" and KEYS.hold not in await marks(bench, shard)


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        ("web-2", False),
        ("web-3", True),
        ("web-11", True),
        ("late-4", False),
        ("late-5", True),
        ("late-0", False),
        ("gone-7", False),
        ("web-7d9f8c-abcde", False),
        ("web", False),
    ],
)
async def test_a_replica_is_scaled_away_if_its_ordinal_is_beyond_those_of_its_statefulset(
    bench: Bench, admin: IndependentClient, pod: str, wanted: bool
) -> None:
    await scale(admin, "web", 3, namespace=NAMESPACE)
    await scale(admin, "late", 2, namespace=NAMESPACE, start=3)
    assert await is_scaled_away(bench.client, f"{NAMESPACE}/{pod}") is wanted


@pytest.mark.parametrize("fault", [{"what": "error", "code": 403}, {"what": "latency", "delay_s": 60.0}])
async def test_a_replica_that_cannot_read_its_statefulset_is_rolled(
    bench: Bench, admin: IndependentClient, fault: dict[str, Any]
) -> None:
    await scale(admin, "web", 1, namespace=NAMESPACE)
    await bench.plane.faults.add(Fault(resource="statefulsets.apps", **fault))
    async with asyncio.timeout(QUESTION_TIMEOUT_S + 10):
        assert not await is_scaled_away(bench.client, f"{NAMESPACE}/web-1")


async def test_a_replica_that_is_scaled_away_works_until_its_objects_are_gone_and_wants_no_hold(
    bench: Bench, admin: IndependentClient
) -> None:
    await scale(admin, "web", 1, namespace=NAMESPACE)
    heir = await start(bench, "web-0")
    leaving = await start(bench, "web-1")
    await bench.site("mine", "publish hello", owner=leaving)
    await bench.until(lambda: bench.page("mine"), within_s=WITHIN_S)
    leaving.signal(15)
    await bench.until(lambda: is_leaving(bench, leaving), within_s=WITHIN_S)
    assert await bench.holder(leaving) == leaving.name
    await bench.edit("mine", "publish again")
    await bench.until(lambda: bench.page("mine"), equals="again", within_s=WITHIN_S)
    await bench.label(WEBSITES, "mine", drain=heir.name)
    assert await leaving.ended(WITHIN_S) == 0
    assert await released_without_hold(bench, leaving)
    assert await bench.owner(WEBSITES, "mine") == heir.name


async def test_a_replica_that_is_rolled_is_no_leaving_one_and_its_place_is_held(
    bench: Bench, admin: IndependentClient
) -> None:
    await scale(admin, "web", 2, namespace=NAMESPACE)
    await start(bench, "web-0")
    rolled = await start(bench, "web-1")
    await bench.site("mine", "publish hello", owner=rolled)
    await bench.until(lambda: bench.page("mine"), within_s=WITHIN_S)
    assert await rolled.terminate(WITHIN_S) == 0
    assert (await marks(bench, rolled)).get(KEYS.hold) == "true"
    assert not await is_leaving(bench, rolled)
    assert await bench.holder(rolled) == ""


async def test_a_leaving_replica_that_hands_nothing_over_ends_in_time(
    bench: Bench, admin: IndependentClient
) -> None:
    """As with a sharder that does not know the annotation, or a ring that is paused."""
    await scale(admin, "web", 1, namespace=NAMESPACE)
    await start(bench, "web-0")
    leaving = await start(bench, "web-1", grace_s=SHORT_S)
    await bench.site("mine", "publish hello", owner=leaving)
    await bench.until(lambda: bench.page("mine"), within_s=WITHIN_S)
    assert await leaving.terminate(WITHIN_S) == 0
    assert await released_without_hold(bench, leaving)
    assert await is_leaving(bench, leaving)


async def test_without_another_replica_that_stays_a_leaving_one_ends_at_once(
    bench: Bench, admin: IndependentClient
) -> None:
    """A scale to zero: each of the two finds the other leaving, or gone."""
    await scale(admin, "web", 0, namespace=NAMESPACE)
    both = [await start(bench, "web-0"), await start(bench, "web-1")]
    for number, shard in enumerate(both):
        await bench.site(f"site-{number}", "publish hello", owner=shard)
        await bench.until(lambda number=number: bench.page(f"site-{number}"), within_s=WITHIN_S)  # type: ignore[misc]
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(shard.terminate(WITHIN_S)) for shard in both]
    assert [end.result() for end in ends] == [0, 0]
    for shard in both:
        assert await released_without_hold(bench, shard)


async def test_a_replica_that_takes_over_the_lease_of_a_leaving_one_is_not_leaving(
    bench: Bench, admin: IndependentClient
) -> None:
    """Scaled up again before a sharder took the Lease."""
    await scale(admin, "web", 0, namespace=NAMESPACE)
    leaving = await start(bench, "web-0", grace_s=SHORT_S)
    await start(bench, "web-1")
    await bench.site("mine", "publish hello", owner=leaving)
    await bench.until(lambda: bench.page("mine"), within_s=WITHIN_S)
    assert await leaving.terminate(WITHIN_S) == 0
    assert await is_leaving(bench, leaving)
    following = await start(bench, "web-0")
    assert following.name == leaving.name
    assert not await is_leaving(bench, following)
    assert (await marks(bench, following))[KEYS.hold] == "true"


async def test_a_leaving_replica_that_loses_its_lease_ends_at_once(
    bench: Bench, admin: IndependentClient
) -> None:
    await scale(admin, "web", 1, namespace=NAMESPACE)
    await start(bench, "web-0")
    leaving = await start(bench, "web-1")
    await bench.site("mine", "publish hello", owner=leaving)
    await bench.until(lambda: bench.page("mine"), within_s=WITHIN_S)
    leaving.signal(15)
    await bench.until(lambda: is_leaving(bench, leaving), within_s=WITHIN_S)
    await bench.merge(LEASES, leaving.name, spec={"holderIdentity": "sharder:other"})
    assert await leaving.ended(WITHIN_S) == LOST_LEASE_EXIT


async def test_a_grace_period_outside_of_pods_is_refused(bench: Bench) -> None:
    refused = await bench.start("web-0", flags=("--termination-grace-period", "90s"), wait=False)
    assert await refused.ended(WITHIN_S) == 2
    assert "--termination-grace-period" in refused.log.read_text()
    assert "POD_NAMESPACE is not set" in refused.log.read_text()
