"""Objects that a stranger wrote to do harm: they cost themselves at most, the ring goes on."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.faults import Fault
from kubeio.leases.lease import Leases
from kubeio.models import Meta
from kubeio.protocol import CONTROLLER_RINGS
from sharder.membership.unknown_names import MAX_UNKNOWN_NAMES
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    SharderEnvironment,
    eventually,
    is_balanced,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on

BY_LABEL = {"key": "Label", "keyLabel": "tenant"}


async def strange_page(env: SharderEnvironment, name: str, *, controller: str, owner: str = "") -> None:
    """A ConfigMap that says that the Website *controller* controls it."""
    labels = {KEYS.shard: owner} if owner else {}
    await env.make(
        CONFIGMAPS, name, labels=labels, above=(WEBSITES, Meta(name=controller, uid="no-uid-at-all"))
    )


@pytest.mark.parametrize("key", [{}, BY_LABEL], ids=["key-object", "key-label"])
async def test_a_reference_to_what_cannot_exist_stops_no_pass_and_no_deletion(
    env: SharderEnvironment, key: dict[str, str]
) -> None:
    await env.ring(**key)
    await env.join("ab")
    for number, name in enumerate(("a/b", "..", ".", "no%20body")):
        await strange_page(env, f"aa-{number}", controller=name)
        await strange_page(env, f"ab-{number}", controller=name, owner="a-00000001")
    await env.sites(3)
    owned = [f"ab-{number}" for number in range(4)]
    async with owners_that_pass_on(env), env.sharder():
        await eventually(lambda: env.drains(CONFIGMAPS), dict.fromkeys(owned, ""))
        await env.acknowledge_all(CONFIGMAPS)
        await env.until_balanced()
        assert all((await env.owners()).values())
        pages = await env.owners(CONFIGMAPS)
        assert [pages[f"aa-{number}"] for number in range(4)] == [""] * 4
        for shard in env.shards:
            await shard.release()
        await env.client.delete(CONTROLLER_RINGS, RING)
        await env.until_ring_is_gone()
        assert set((await env.owners(CONFIGMAPS)).values()) == {""}


async def test_a_controller_that_cannot_be_read_keeps_no_other_object_from_its_place(
    env: SharderEnvironment,
) -> None:
    await env.ring(**BY_LABEL)
    await env.join("ab")
    await strange_page(env, "aaa", controller="broken", owner="a-00000001")
    await env.plane.faults.add(
        Fault(what="error", user="sharder-1", verb="get", resource="websites.example.com", name="broken")
    )
    await env.sites(6, labels={KEYS.shard: "a-00000001"})
    async with owners_that_pass_on(env), env.sharder():
        await eventually(env.owners, lambda owners: len(set(owners.values())) == 2)
        assert not await is_balanced(env), "one object could not be judged"
        await env.plane.faults.clear()
        await env.until_balanced(within_s=40)


async def test_forged_names_keep_a_deleted_ring_for_one_lease_duration(env: SharderEnvironment) -> None:
    await env.ring()
    for number in range(150):
        await env.site(f"forged-{number}", labels={KEYS.shard: f"forged-{number}-0badcafe"})
    async with env.sharder():
        await wait_until(env.status)
        await env.client.delete(CONTROLLER_RINGS, RING)
        await env.until_ring_is_gone(within_s=15)
    assert set((await env.owners()).values()) == {""}
    leases, _ = await Leases(env.client, "default").list()
    assert len(leases) < MAX_UNKNOWN_NAMES


async def test_a_ring_goes_only_after_a_fresh_read_of_its_leases(env: SharderEnvironment) -> None:
    """A shard that was born unseen may have found its name on an object before the label went."""
    await env.ring()
    async with env.sharder():
        await wait_until(env.status)
        fault = Fault(what="error", user="sharder-1", verb="list", resource="leases.coordination.k8s.io")
        await env.plane.faults.add(fault)
        await env.client.delete(CONTROLLER_RINGS, RING)
        await asyncio.sleep(3)
        assert await env.exists(CONTROLLER_RINGS, RING)
        await env.plane.faults.clear()
        await env.until_ring_is_gone()


async def test_a_ring_goes_only_after_a_pass_without_workers(env: SharderEnvironment) -> None:
    """The last thing that a shard creates, for an object that was deleted under it, carries its name."""
    await env.ring()
    shard = await env.shard("a", fills=False)  # without a place: its end changes no ring
    site = await env.site("blog")
    async with env.sharder():
        await wait_until(env.status)
        await env.client.delete(CONTROLLER_RINGS, RING)
        await asyncio.sleep(3)
        late = Fault(what="latency", user="sharder-1", verb="update", name=shard.name, delay_s=3.0)
        await env.plane.faults.add(late)  # its Lease is not taken yet when none is held
        await env.page(site, labels={KEYS.shard: shard.name})
        await shard.release()
        await env.until_ring_is_gone()
        assert (await env.owners(CONFIGMAPS))["blog"] == ""
