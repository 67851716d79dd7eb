"""From an unsharded controller to a ring and back: its leader-election Lease decides (protocol, section 7)."""

from __future__ import annotations

import asyncio
import random

import msgspec

from kubeio.clock import SystemClock, micro_time
from kubeio.leases.election import leadership
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import CONTROLLER_RINGS
from sharder.membership.activation import FORMER_DURATION, HELD_S
from tests.sharder.io.ground import RING, Ground, eventually, wait_until

FORMER = {"lease": {"namespace": "default", "name": "website-leader"}}


async def former_lease(ground: Ground, holder: str) -> None:
    now = micro_time(SystemClock().wall())
    await ground.leases.create(Lease(Meta(name="website-leader"), LeaseSpec(holder, 2, now, now, 3)))


async def holder(ground: Ground) -> str:
    return (await ground.leases.get("website-leader")).spec.holder_identity or ""


async def test_nothing_is_assigned_while_the_former_controller_leads(ground: Ground) -> None:
    await ground.ring(activation=FORMER)
    await former_lease(ground, "old-controller")
    await ground.shard("a")
    await ground.site("one")

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.5)
            lease = await ground.leases.get("website-leader")
            lease.spec.renew_time = micro_time(SystemClock().wall())
            await ground.leases.swap(lease)

    renewing = asyncio.create_task(renew())
    async with ground.sharder():
        await asyncio.sleep(4.0)
        assert (await ground.owners())["one"] == ""
        assert await holder(ground) == "old-controller"
        renewing.cancel()
        await eventually(ground.owners, lambda owners: owners["one"] == "a-00000001")
        assert await holder(ground) == f"ringleader:{RING}"


async def test_a_released_lease_is_taken_at_once_and_kept_over_a_fail_over(ground: Ground) -> None:
    await ground.ring(activation=FORMER)
    await former_lease(ground, "")
    await ground.shard("a")
    await ground.site("one")
    async with ground.sharder("sharder-1"):
        await ground.until_balanced()
    assert await holder(ground) == f"ringleader:{RING}"
    async with ground.sharder("sharder-2"):
        await ground.site("two")
        await eventually(ground.owners, lambda owners: owners["two"] == "a-00000001", within_s=5)


async def test_the_lease_is_given_back_only_when_every_object_was_given_up(ground: Ground) -> None:
    await ground.ring(activation=FORMER)
    await former_lease(ground, "")
    a = await ground.shard("a")
    await ground.sites(3)
    async with ground.sharder():
        await ground.until_balanced()
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await eventually(ground.drains, lambda drains: list(drains.values()) == [""] * 3)
        assert await holder(ground) == f"ringleader:{RING}"
        await ground.acknowledge_all()
        await a.release()
        await ground.until_ring_is_gone()
        lease = await ground.leases.get("website-leader")
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 2), "as it was before"
        assert lease.metadata.annotations == {}


async def stand_for_election(ground: Ground, led: asyncio.Event) -> None:
    """A candidate of the former controller, which leads as soon as it may."""
    async with leadership(
        ground.leases,
        name="website-leader",
        identity="old-candidate",
        lease_duration_s=2.0,
        clock=SystemClock(),
        rng=random.Random(1),
    ):
        led.set()
        await asyncio.Event().wait()


async def test_an_outage_of_all_sharders_gives_the_former_controller_nothing(ground: Ground) -> None:
    await ground.ring(activation=FORMER)
    await former_lease(ground, "")
    await ground.shard("a")
    await ground.site("one")
    led = asyncio.Event()
    async with ground.sharder():
        await ground.until_balanced()
        candidate = asyncio.create_task(stand_for_election(ground, led))
        await asyncio.sleep(0.5)
    lease = await ground.leases.get("website-leader")
    assert lease.spec.lease_duration_seconds == HELD_S
    assert lease.metadata.annotations == {FORMER_DURATION: "2"}
    await asyncio.sleep(3 * 2.0)
    candidate.cancel()
    assert not led.is_set(), "shards go on while no sharder is there"
    assert (await ground.owners())["one"] == "a-00000001"


async def test_a_former_lease_that_another_one_holds_releases_every_object(ground: Ground) -> None:
    await ground.ring(activation=FORMER)
    await former_lease(ground, "")
    await ground.shard("a")
    await ground.sites(3)
    async with ground.sharder():
        await ground.until_balanced()
        lease = await ground.leases.get("website-leader")
        spec = msgspec.structs.replace(lease.spec, holder_identity="old-candidate", lease_duration_seconds=60)
        await ground.leases.swap(msgspec.structs.replace(lease, spec=spec))
        await eventually(ground.drains, lambda drains: list(drains.values()) == [""] * 3)
        await ground.acknowledge_all()
        await wait_until(lambda: is_told(ground))
        assert set((await ground.owners()).values()) == {""}


async def is_told(ground: Ground) -> bool:
    ready = await ground.condition("Ready")
    return ready.get("reason") == "FormerController" and "old-candidate" in str(ready.get("message"))
