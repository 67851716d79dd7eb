"""What a sharder counts while it works: moves by reason, members, convergence; nothing stays of a ring that went."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from devcluster.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from sharder.metrics import SharderMetrics
from sharder.rings.manager import RingManager
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    RING,
    Ground,
    eventually,
    is_balanced,
    running,
    sharder_context,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on


@asynccontextmanager
async def measured(ground: Ground) -> AsyncIterator[CollectorRegistry]:
    """A sharder that leads, and its registry."""
    registry = CollectorRegistry()
    user = await ground.plane.kubeconfig_for("sharder-1")
    async with Client(load_cluster(kubeconfig=str(user))) as client:
        context = sharder_context(client, metrics=SharderMetrics(registry))
        rings = RingManager(context, names=())
        rings.lead()
        async with running(rings.run()):
            yield registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"ringleader_{name}", {"ring": RING, **labels}) or 0.0


def samples(registry: CollectorRegistry) -> list[Sample]:
    return [sample for metric in registry.collect() for sample in metric.samples]


async def test_moves_are_counted_by_their_reason(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    await ground.sites(8)
    async with measured(ground) as registry:
        await wait_until(lambda: value(registry, "moves_total", reason="new") == 8)
        await ground.shard("b")

        async def passed_on() -> bool:
            await ground.acknowledge_all()
            return await is_balanced(ground) and len(set((await ground.owners()).values())) == 2

        await wait_until(passed_on)
        drained = value(registry, "moves_total", reason="rebalance")
        moved = list((await ground.owners()).values()).count("b-00000001")
        assert drained == moved > 0
        left = list((await ground.owners()).values()).count(a.name)
        await a.release()
        await wait_until(lambda: value(registry, "moves_total", reason="owner_dead") == left)
        assert value(registry, "object_writes_total", kind="Drain", outcome="done") == drained
        assert value(registry, "patch_seconds_count", kind="Assign") >= 8 + left
        assert value(registry, "ring_changes_total", change="joined") == 2
        await wait_until(lambda: value(registry, "ring_changes_total", change="left") == 1)
        assert value(registry, "shard_state_changes_total", state="released") == 1
        await wait_until(lambda: value(registry, "shards", state="dead") == 1)


async def test_the_last_convergence_and_its_length_stand_in_status_and_metrics(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    async with measured(ground) as registry:
        await wait_until(lambda: value(registry, "last_convergence_timestamp_seconds"))
        await eventually(ground.status, lambda status: status.get("lastConvergence"))
        last = (await ground.status())["lastConvergence"]
        assert isinstance(last, dict)
        assert 0 <= last["durationSeconds"] < 10
        assert last["durationSeconds"] == round(value(registry, "last_convergence_seconds"), 3)


async def test_the_last_rebalance_shows_how_many_objects_moved_without_what_follows_them(
    ground: Ground,
) -> None:
    await ground.ring()
    a = await ground.shard("a")
    for number in range(7):
        await ground.page(await ground.site(f"site-{number}"))

    async def passed_on(shard: str) -> bool:
        for name in await ground.drains():
            await ground.patch(CONFIGMAPS, name, {"metadata": {"labels": {KEYS.shard: shard}}})
            await ground.acknowledge(name)
        passed = list((await ground.owners()).values()).count(shard)
        return 0 < passed == await ground.last_moved()

    async with measured(ground):
        await ground.until_balanced()
        b = await ground.shard("b")
        await wait_until(lambda: passed_on(b.name))
        given = await ground.last_moved()
        assert 0 < given < 7
        await a.release()
        await eventually(ground.last_moved, 7 - given)
        assert set((await ground.owners(CONFIGMAPS)).values()) == {b.name}


async def test_the_pace_of_a_rebalance_is_that_of_its_moves_not_of_the_pauses_around_them(
    ground: Ground,
) -> None:
    await ground.ring(paused=True)
    await ground.shard("a")
    await ground.sites(12)
    async with measured(ground), owners_that_pass_on(ground):
        await ground.until_balanced()
        await ground.shard("b")
        await eventually(ground.status, lambda status: status.get("availableShards") == 2)
        await ground.plane.faults.add(
            Fault(what="latency", verb="list", resource="websites.example.com", user="sharder-1", delay_s=1.5)
        )
        await ground.ring(paused=False)
        await wait_until(ground.last_moved, within_s=20)
    status = await ground.status()
    converged, rebalanced = status["lastConvergence"], status["lastRebalance"]
    assert isinstance(converged, dict)
    assert isinstance(rebalanced, dict)
    assert converged["time"] == rebalanced["time"]
    assert 0 < rebalanced["durationSeconds"] < converged["durationSeconds"] - 2 * 1.5


async def test_a_ring_that_is_gone_leaves_no_series_behind(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    async with measured(ground) as registry:
        await wait_until(lambda: value(registry, "ring_version"))
        await a.release()
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await ground.until_ring_is_gone()
        await wait_until(lambda: not any(s.labels.get("ring") == RING for s in samples(registry)))


async def test_an_overdue_shard_s_series_goes_when_it_has_answered(ground: Ground) -> None:
    await ground.ring(drainTimeoutSeconds=1)
    a = await ground.shard("a")
    await ground.sites(6)
    async with measured(ground) as registry:
        await ground.until_balanced()
        await ground.ring(drainTimeoutSeconds=1, members={"a": {"cordoned": True}})
        await ground.shard("b")
        await wait_until(lambda: value(registry, "handoffs_overdue", shard=a.name) == 6)

        async def answered() -> bool:
            await ground.acknowledge_all()
            return not await ground.drains()

        await wait_until(answered)
        await wait_until(lambda: not any(s.name == "ringleader_handoffs_overdue" for s in samples(registry)))
