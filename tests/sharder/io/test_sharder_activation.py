"""From an unsharded controller to a ring and back: its leader-election Lease decides (protocol, section 7)."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import msgspec

from devcluster.faults.fault import Fault
from kubeio.clock import SystemClock, micro_time
from kubeio.leases.election import leadership
from kubeio.leases.lease import Leases
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import NAMESPACES
from sharder.membership.activation import FORMER_DURATION, HELD_S
from tests.sharder.io.environment import RING, SharderEnvironment, eventually, wait_until

FORMER = {"lease": {"namespace": "default", "name": "website-leader"}}
ELSEWHERE = {"lease": {"namespace": "shop", "name": "website-leader"}}


async def former_lease(env: SharderEnvironment, holder: str) -> None:
    now = micro_time(SystemClock().wall())
    await env.leases.create(Lease(Meta(name="website-leader"), LeaseSpec(holder, 2, now, now, 3)))


async def hold(env: SharderEnvironment, holder: str, *, duration_s: int = 2) -> None:
    """Write another holder by hand, and no renewal."""
    lease = await env.leases.get("website-leader")
    spec = msgspec.structs.replace(lease.spec, holder_identity=holder, lease_duration_seconds=duration_s)
    await env.leases.swap(msgspec.structs.replace(lease, spec=spec))


async def holder(env: SharderEnvironment) -> str:
    return (await env.leases.get("website-leader")).spec.holder_identity or ""


async def test_nothing_is_assigned_while_the_former_controller_leads(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    await former_lease(env, "old-controller")
    await env.shard("a")
    await env.site("one")

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.5)
            lease = await env.leases.get("website-leader")
            lease.spec.renew_time = micro_time(SystemClock().wall())
            await env.leases.swap(lease)

    renewing = asyncio.create_task(renew())
    async with env.sharder():
        await asyncio.sleep(4.0)
        assert (await env.owners())["one"] == ""
        assert await holder(env) == "old-controller"
        renewing.cancel()
        await eventually(env.owners, lambda owners: owners["one"] == "a-00000001")
        assert await holder(env) == f"ringleader:{RING}"


async def test_a_released_lease_is_taken_at_once_and_kept_over_a_fail_over(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    await former_lease(env, "")
    await env.shard("a")
    await env.site("one")
    async with env.sharder("sharder-1"):
        await env.until_balanced()
    assert await holder(env) == f"ringleader:{RING}"
    async with env.sharder("sharder-2"):
        await env.site("two")
        await eventually(env.owners, lambda owners: owners["two"] == "a-00000001", within_s=5)


async def test_the_lease_is_given_back_only_when_every_object_was_given_up(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    await former_lease(env, "")
    a = await env.shard("a")
    await env.sites(3)
    async with env.sharder():
        await env.until_balanced()
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 3)
        assert await holder(env) == f"ringleader:{RING}"
        await env.acknowledge_all()
        await a.release()
        await env.until_ring_is_gone()
        lease = await env.leases.get("website-leader")
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 2), "as it was before"
        assert lease.metadata.annotations == {}


async def stand_for_election(env: SharderEnvironment, led: asyncio.Event) -> None:
    """A candidate of the former controller, which leads as soon as it may."""
    async with leadership(
        env.leases,
        name="website-leader",
        identity="old-candidate",
        lease_duration_s=2.0,
        clock=SystemClock(),
        rng=random.Random(1),
    ):
        led.set()
        await asyncio.Event().wait()


async def test_an_outage_of_all_sharders_gives_the_former_controller_nothing(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    await former_lease(env, "")
    await env.shard("a")
    await env.site("one")
    led = asyncio.Event()
    async with env.sharder():
        await env.until_balanced()
        candidate = asyncio.create_task(stand_for_election(env, led))
        await asyncio.sleep(0.5)
    lease = await env.leases.get("website-leader")
    assert lease.spec.lease_duration_seconds == HELD_S
    assert lease.metadata.annotations == {FORMER_DURATION: "2"}
    await asyncio.sleep(3 * 2.0)
    candidate.cancel()
    assert not led.is_set(), "shards go on while no sharder is there"
    assert (await env.owners())["one"] == "a-00000001"


async def test_a_former_lease_that_another_one_holds_releases_every_object(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    await former_lease(env, "")
    await env.shard("a")
    await env.sites(3)
    async with env.sharder():
        await env.until_balanced()
        await hold(env, "old-candidate", duration_s=60)
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 3)
        await env.acknowledge_all()
        await wait_until(lambda: is_told(env))
        assert set((await env.owners()).values()) == {""}


async def test_a_holder_who_comes_back_is_waited_for_anew(env: SharderEnvironment) -> None:
    """Its Lease says what it said before the release that the sharder saw and could not use."""
    await env.ring(activation=FORMER)
    await former_lease(env, "old-candidate")
    async with env.sharder():
        refused = await env.plane.faults.add(
            Fault(what="error", verb="update", name="website-leader", user="sharder-1", code=503)
        )
        await asyncio.sleep(1.5)
        await hold(env, "")
        await eventually(env.plane.faults.active, lambda faults: faults[0].hits > 0)
        await hold(env, "old-candidate")
        await env.plane.faults.clear(refused)
        await asyncio.sleep(1.5)
        assert await holder(env) == "old-candidate"
        await eventually(partial(holder, env), lambda name: name == f"ringleader:{RING}")


async def test_a_ring_outlives_the_namespace_of_its_former_lease_over_a_fail_over(
    env: SharderEnvironment,
) -> None:
    await env.namespace("shop", {})
    await env.ring(activation=ELSEWHERE)
    a = await env.shard("a")
    await env.site("one")
    async with env.sharder("sharder-1"):
        await env.until_balanced()
    assert (
        await Leases(env.client, "shop").get("website-leader")
    ).spec.holder_identity == f"ringleader:{RING}"
    await env.client.delete(NAMESPACES, "shop")
    await eventually(lambda: env.exists(NAMESPACES, "shop"), False)
    async with env.sharder("sharder-2"):
        await env.site("two")
        await eventually(env.owners, {"one": "a-00000001", "two": "a-00000001"})
        await env.until_condition("Ready", status="True", reason="FormerLease", says="namespace shop of")
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, lambda drains: list(drains.values()) == [""] * 2)
        await env.acknowledge_all()
        await a.release()
        await env.until_ring_is_gone()


async def test_a_former_lease_that_may_not_be_read_is_named_and_waited_for(env: SharderEnvironment) -> None:
    await env.ring(activation=FORMER)
    a = await env.shard("a")
    await env.site("one")
    refused = Fault(what="error", name="website-leader", user="sharder-1", code=403, message="by no Role")
    async with env.sharder():
        fault = await env.plane.faults.add(refused)
        await env.until_condition("Ready", status="False", reason="FormerLease", says="by no Role")
        await env.plane.faults.clear(fault)
        await env.until_condition("Ready", status="True", reason="Working")
        await eventually(env.owners, {"one": "a-00000001"})
        await env.plane.faults.add(refused)
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, {"one": ""})
        await env.acknowledge_all()
        await a.release()
        await env.until_condition("Releasing", reason="RingDeleted", says="by no Role")
        await env.plane.faults.clear()
        await env.until_ring_is_gone()
        assert await holder(env) == ""


async def is_told(env: SharderEnvironment) -> bool:
    ready = await env.condition("Ready")
    return ready.get("reason") == "FormerController" and "old-candidate" in str(ready.get("message"))
