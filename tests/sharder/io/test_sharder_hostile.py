"""Objects that a stranger wrote to do harm: they cost themselves at most, the ring goes on."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.faults import Fault
from kubeio.leases.lease import Leases
from kubeio.models import HasMeta
from kubeio.protocol import CONTROLLER_RINGS
from sharder.membership.membership import MOST_STRANGERS
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, Ground, is_balanced, wait_until
from tests.sharder.io.owners import owners_that_pass_on
from tests.sharder.io.test_sharder_placing import two_shards

BY_LABEL = {"key": "Label", "keyLabel": "tenant"}


async def strange_page(ground: Ground, name: str, *, controller: str, owner: str = "") -> None:
    """A ConfigMap that says that the Website *controller* controls it."""
    reference = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "name": controller,
        "uid": "no-uid-at-all",
        "controller": True,
    }
    labels = {KEYS.shard: owner} if owner else {}
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
    }
    await ground.client.create(CONFIGMAPS, document, namespace="default", type=HasMeta)


@pytest.mark.parametrize("key", [{}, BY_LABEL], ids=["key-object", "key-label"])
async def test_a_reference_to_what_cannot_exist_stops_no_pass_and_no_deletion(
    ground: Ground, key: dict[str, str]
) -> None:
    await ground.ring(**key)
    await two_shards(ground)
    for number, name in enumerate(("a/b", "..", ".", "no%20body")):
        await strange_page(ground, f"aa-{number}", controller=name)
        await strange_page(ground, f"ab-{number}", controller=name, owner="a-00000001")
    await ground.sites(3)
    owned = [f"ab-{number}" for number in range(4)]
    async with owners_that_pass_on(ground), ground.sharder():

        async def asked_for() -> bool:
            labels = await ground.labels(CONFIGMAPS)
            return all(labels[name].get(KEYS.drain) == "" for name in owned)

        await wait_until(asked_for)
        for name in owned:
            await ground.acknowledge(name, resource=CONFIGMAPS)
        await wait_until(lambda: is_balanced(ground))
        assert all((await ground.owners()).values())
        pages = await ground.owners(CONFIGMAPS)
        assert [pages[f"aa-{number}"] for number in range(4)] == [""] * 4
        for shard in ground.shards:
            await shard.release()
        await ground.client.delete(CONTROLLER_RINGS, RING)

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)
        assert set((await ground.owners(CONFIGMAPS)).values()) == {""}


async def test_a_controller_that_cannot_be_read_keeps_no_other_object_from_its_place(ground: Ground) -> None:
    await ground.ring(**BY_LABEL)
    await two_shards(ground)
    await strange_page(ground, "aaa", controller="broken", owner="a-00000001")
    await ground.plane.faults.add(
        Fault(what="error", user="sharder-1", verb="get", resource="websites.example.com", name="broken")
    )
    await ground.sites(6, labels={KEYS.shard: "a-00000001"})
    async with owners_that_pass_on(ground), ground.sharder():

        async def shared() -> bool:
            return len(set((await ground.owners()).values())) == 2

        await wait_until(shared)
        assert not await is_balanced(ground), "one object could not be judged"
        await ground.plane.faults.clear()
        await wait_until(lambda: is_balanced(ground), within_s=40)


async def test_forged_names_keep_a_deleted_ring_for_one_lease_duration(ground: Ground) -> None:
    await ground.ring()
    for number in range(150):
        await ground.site(f"forged-{number}", labels={KEYS.shard: f"forged-{number}-0badcafe"})
    async with ground.sharder():
        await wait_until(ground.status)
        await ground.client.delete(CONTROLLER_RINGS, RING)

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone, within_s=15)
    assert set((await ground.owners()).values()) == {""}
    leases, _ = await Leases(ground.client, "default").list()
    assert len(leases) < MOST_STRANGERS


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

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)
