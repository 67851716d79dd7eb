"""Objects that a stranger wrote to do harm: they cost themselves at most, the ring goes on."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.embedded.faults import Fault
from kubeio.leases.lease import Leases
from kubeio.models import Meta
from kubeio.protocol import CONTROLLER_RINGS
from sharder.membership.unknown_names import MAX_UNKNOWN_NAMES
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    Ground,
    eventually,
    is_balanced,
    wait_until,
)
from tests.sharder.io.owners import owners_that_pass_on

BY_LABEL = {"key": "Label", "keyLabel": "tenant"}


async def strange_page(ground: Ground, name: str, *, controller: str, owner: str = "") -> None:
    """A ConfigMap that says that the Website *controller* controls it."""
    labels = {KEYS.shard: owner} if owner else {}
    await ground.make(
        CONFIGMAPS, name, labels=labels, above=(WEBSITES, Meta(name=controller, uid="no-uid-at-all"))
    )


@pytest.mark.parametrize("key", [{}, BY_LABEL], ids=["key-object", "key-label"])
async def test_a_reference_to_what_cannot_exist_stops_no_pass_and_no_deletion(
    ground: Ground, key: dict[str, str]
) -> None:
    await ground.ring(**key)
    await ground.join("ab")
    for number, name in enumerate(("a/b", "..", ".", "no%20body")):
        await strange_page(ground, f"aa-{number}", controller=name)
        await strange_page(ground, f"ab-{number}", controller=name, owner="a-00000001")
    await ground.sites(3)
    owned = [f"ab-{number}" for number in range(4)]
    async with owners_that_pass_on(ground), ground.sharder():
        await eventually(lambda: ground.drains(CONFIGMAPS), dict.fromkeys(owned, ""))
        await ground.acknowledge_all(CONFIGMAPS)
        await ground.until_balanced()
        assert all((await ground.owners()).values())
        pages = await ground.owners(CONFIGMAPS)
        assert [pages[f"aa-{number}"] for number in range(4)] == [""] * 4
        for shard in ground.shards:
            await shard.release()
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await ground.until_ring_is_gone()
        assert set((await ground.owners(CONFIGMAPS)).values()) == {""}


async def test_a_controller_that_cannot_be_read_keeps_no_other_object_from_its_place(ground: Ground) -> None:
    await ground.ring(**BY_LABEL)
    await ground.join("ab")
    await strange_page(ground, "aaa", controller="broken", owner="a-00000001")
    await ground.plane.faults.add(
        Fault(what="error", user="sharder-1", verb="get", resource="websites.example.com", name="broken")
    )
    await ground.sites(6, labels={KEYS.shard: "a-00000001"})
    async with owners_that_pass_on(ground), ground.sharder():
        await eventually(ground.owners, lambda owners: len(set(owners.values())) == 2)
        assert not await is_balanced(ground), "one object could not be judged"
        await ground.plane.faults.clear()
        await ground.until_balanced(within_s=40)


async def test_forged_names_keep_a_deleted_ring_for_one_lease_duration(ground: Ground) -> None:
    await ground.ring()
    for number in range(150):
        await ground.site(f"forged-{number}", labels={KEYS.shard: f"forged-{number}-0badcafe"})
    async with ground.sharder():
        await wait_until(ground.status)
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await ground.until_ring_is_gone(within_s=15)
    assert set((await ground.owners()).values()) == {""}
    leases, _ = await Leases(ground.client, "default").list()
    assert len(leases) < MAX_UNKNOWN_NAMES


async def test_a_ring_goes_only_after_a_fresh_read_of_its_leases(ground: Ground) -> None:
    """A shard that was born unseen may have found its name on an object before the label went."""
    await ground.ring()
    async with ground.sharder():
        await wait_until(ground.status)
        fault = Fault(what="error", user="sharder-1", verb="list", resource="leases.coordination.k8s.io")
        await ground.plane.faults.add(fault)
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await asyncio.sleep(3)
        assert await ground.exists(CONTROLLER_RINGS, RING)
        await ground.plane.faults.clear()
        await ground.until_ring_is_gone()
