"""What a sharder counts while it works: moves by reason, members, convergence; nothing stays of a ring that went."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from devcluster.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from sharder.metrics import SharderMetrics
from sharder.rings.manager import RingManager
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    SharderEnvironment,
    eventually,
    is_balanced,
    running,
    sharder_context,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on


@asynccontextmanager
async def measured(env: SharderEnvironment) -> AsyncIterator[CollectorRegistry]:
    """A sharder that leads, and its registry."""
    registry = CollectorRegistry()
    user = await env.plane.kubeconfig_for("sharder-1")
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


async def test_moves_are_counted_by_their_reason(env: SharderEnvironment) -> None:
    await env.ring()
    a = await env.shard("a")
    await env.sites(8)
    async with measured(env) as registry:
        await wait_until(lambda: value(registry, "moves_total", reason="new") == 8)
        await env.shard("b")

        async def passed_on() -> bool:
            await env.acknowledge_all()
            return await is_balanced(env) and len(set((await env.owners()).values())) == 2

        await wait_until(passed_on)
        drained = value(registry, "moves_total", reason="rebalance")
        moved = list((await env.owners()).values()).count("b-00000001")
        assert drained == moved > 0
        left = list((await env.owners()).values()).count(a.name)
        await a.release()
        await wait_until(lambda: value(registry, "moves_total", reason="owner_dead") == left)
        assert value(registry, "object_writes_total", kind="Drain", outcome="done") == drained
        assert value(registry, "patch_seconds_count", kind="Assign") >= 8 + left
        assert value(registry, "ring_changes_total", change="joined") == 2
        await wait_until(lambda: value(registry, "ring_changes_total", change="left") == 1)
        assert value(registry, "shard_state_changes_total", state="released") == 1
        await wait_until(lambda: value(registry, "shards", state="dead") == 1)


async def test_the_last_convergence_and_its_length_stand_in_status_and_metrics(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(3)
    async with measured(env) as registry:
        await wait_until(lambda: value(registry, "last_convergence_timestamp_seconds"))
        await eventually(env.status, lambda status: status.get("lastConvergence"))
        last = (await env.status())["lastConvergence"]
        assert isinstance(last, dict)
        assert 0 <= last["durationSeconds"] < 10
        assert last["durationSeconds"] == round(value(registry, "last_convergence_seconds"), 3)


async def test_the_last_rebalance_shows_how_many_objects_moved_without_what_follows_them(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    a = await env.shard("a")
    for number in range(7):
        await env.page(await env.site(f"site-{number}"))

    async def passed_on(shard: str) -> bool:
        for name in await env.drains():
            await env.patch(CONFIGMAPS, name, {"metadata": {"labels": {KEYS.shard: shard}}})
            await env.acknowledge(name)
        passed = list((await env.owners()).values()).count(shard)
        return 0 < passed == await env.last_moved()

    async with measured(env):
        await env.until_balanced()
        b = await env.shard("b")
        await wait_until(lambda: passed_on(b.name))
        given = await env.last_moved()
        assert 0 < given < 7
        await a.release()
        await eventually(env.last_moved, 7 - given)
        assert set((await env.owners(CONFIGMAPS)).values()) == {b.name}


async def test_the_pace_of_a_rebalance_is_that_of_its_moves_not_of_the_pauses_around_them(
    env: SharderEnvironment,
) -> None:
    await env.ring(paused=True)
    await env.shard("a")
    await env.sites(12)
    async with measured(env), owners_that_pass_on(env):
        await env.until_balanced()
        await env.shard("b")
        await eventually(env.status, lambda status: status.get("availableShards") == 2)
        await env.plane.faults.add(
            Fault(what="latency", verb="list", resource="websites.example.com", user="sharder-1", delay_s=1.5)
        )
        await env.ring(paused=False)
        await wait_until(env.last_moved, within_s=20)
    status = await env.status()
    converged, rebalanced = status["lastConvergence"], status["lastRebalance"]
    assert isinstance(converged, dict)
    assert isinstance(rebalanced, dict)
    assert converged["time"] == rebalanced["time"]
    assert 0 < rebalanced["durationSeconds"] < converged["durationSeconds"] - 2 * 1.5


async def test_a_ring_that_is_gone_leaves_no_series_behind(env: SharderEnvironment) -> None:
    await env.ring()
    a = await env.shard("a")
    async with measured(env) as registry:
        await wait_until(lambda: value(registry, "ring_version"))
        await a.release()
        await env.client.delete(CONTROLLER_RINGS, RING)
        await env.until_ring_is_gone()
        await wait_until(lambda: not any(s.labels.get("ring") == RING for s in samples(registry)))


async def test_an_overdue_shard_s_series_goes_when_it_has_answered(env: SharderEnvironment) -> None:
    await env.ring(drainTimeoutSeconds=1)
    a = await env.shard("a")
    await env.sites(6)
    async with measured(env) as registry:
        await env.until_balanced()
        await env.ring(drainTimeoutSeconds=1, members={"a": {"cordoned": True}})
        await env.shard("b")
        await wait_until(lambda: value(registry, "handoffs_overdue", shard=a.name) == 6)

        async def answered() -> bool:
            await env.acknowledge_all()
            return not await env.drains()

        await wait_until(answered)
        await wait_until(lambda: not any(s.name == "ringleader_handoffs_overdue" for s in samples(registry)))


async def test_an_overdue_shard_s_series_goes_with_the_spec_under_which_it_was_late(
    env: SharderEnvironment,
) -> None:
    cordoned = {"a": {"cordoned": True}}
    await env.ring(drainTimeoutSeconds=1)
    a = await env.shard("a")
    await env.sites(2)
    async with measured(env) as registry:
        await env.until_balanced()
        await env.ring(drainTimeoutSeconds=1, members=cordoned)
        await env.shard("b")
        await wait_until(lambda: value(registry, "handoffs_overdue", shard=a.name) == 2, within_s=30)
        await env.ring(drainTimeoutSeconds=600, members=cordoned)
        await wait_until(lambda: not any(s.name == "ringleader_handoffs_overdue" for s in samples(registry)))
        assert len(await env.drains()) == 2


def names_of(registry: CollectorRegistry) -> set[str]:
    """Metrics that have a series of the ring."""
    return {sample.name for sample in samples(registry) if sample.labels.get("ring") == RING}


async def test_objects_that_are_not_reported_any_more_have_no_number(env: SharderEnvironment) -> None:
    await env.ring()
    a = await env.shard("a")
    async with measured(env) as registry:
        await env.patch(
            LEASES, a.name, {"metadata": {"annotations": {KEYS.objects: "websites.example.com=3"}}}
        )
        await wait_until(lambda: value(registry, "ring_objects") == 3)
        await env.patch(LEASES, a.name, {"metadata": {"annotations": {KEYS.objects: None}}})
        await wait_until(lambda: "ringleader_ring_objects" not in names_of(registry), within_s=30)


async def test_a_refused_ring_has_conditions_and_counters_and_no_state_of_before(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(1)
    async with measured(env) as registry:
        await env.until_balanced()
        await wait_until(lambda: value(registry, "shards", state="ready"))
        await env.ring(leaseNamespace="elsewhere")
        await wait_until(lambda: value(registry, "ring_condition", type="Ready", status="False"))
        assert names_of(registry).isdisjoint(
            {"ringleader_shards", "ringleader_ring_converged", "ringleader_oldest_unowned_seconds"}
        )
        assert value(registry, "moves_total", reason="new") == 1
        await env.ring()
        await wait_until(lambda: value(registry, "shards", state="ready"), within_s=30)


async def test_an_object_that_the_api_server_protects_is_refused_and_not_the_oldest_that_waits(
    env: SharderEnvironment,
) -> None:
    """Its ring is Ready, with the reason Refused: no alert about waiting objects for as long as the policy stands."""
    await env.ring()
    await env.shard("a")
    websites = "websites.example.com"
    await env.plane.faults.add(
        Fault(what="error", verb="patch", resource=websites, name="site-0", user="sharder-1", code=422)
    )
    await env.site("site-0")
    async with measured(env) as registry:
        await wait_until(lambda: value(registry, "refused_objects") == 1, within_s=30)
        await wait_until(lambda: value(registry, "oldest_unowned_seconds") == 0, within_s=30)
        assert value(registry, "unowned_objects") == 1
        await env.plane.faults.add(
            Fault(what="latency", verb="patch", resource=websites, user="sharder-1", delay_s=30)
        )
        await env.site("site-1")
        await wait_until(lambda: value(registry, "oldest_unowned_seconds") > 0, within_s=20)
