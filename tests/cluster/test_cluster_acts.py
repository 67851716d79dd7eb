"""The chart's fleet on real nodes, and what a cluster does to it. The tests run in their order, on one fleet.

The image is the released one, on Debian packages where apt-get has them; the summary of the run says which base it has.
Leases last 15 s as the chart has it, objects change ten times a second.
"""

from __future__ import annotations

import pytest

from devcluster.image import NAME
from kubeio.resource import CRDS
from ringleader.testing.client import RequestFailedError
from ringleader.testing.commands import CONFIGMAPS
from tests.cluster.pod_fleet import (
    DEPLOYMENTS,
    KEYS,
    NODES,
    PODS,
    RELEASE,
    REPLICAS,
    SHARDER,
    SPEC,
    STATEFULSETS,
    SYSTEM,
    PodFleet,
    eventually,
    is_ready,
    on,
    restarts,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

BUSY_S = 30.0
"""Allowance for two busy cores."""


async def test_the_release_comes_up_as_pods_of_both_nodes(fleet: PodFleet) -> None:
    await fleet.helm.install(RELEASE, fleet.values(), namespace=SYSTEM)
    await fleet.wait_settled(within_s=180)
    replicas, sharders = await fleet.pods(REPLICAS), await fleet.pods(SHARDER)
    assert (len(replicas), len(sharders)) == (3, 2)
    assert all(is_ready(pod) and restarts(pod) == 0 for pod in [*replicas, *sharders])
    assert {on(pod) for pod in replicas} == {on(pod) for pod in sharders} == {"node-1", "node-2"}


async def test_a_new_object_gets_its_owner_through_the_webhooks_service(fleet: PodFleet) -> None:
    async def unlabelled() -> str:
        ref = await fleet.objects.create(f"new-{len(fleet.objects.refs)}")
        (created,) = [w for w in fleet.plane.writes() if w.uid == ref.uid and w.verb == "create"]
        return "" if (created.labels_after or {}).get(KEYS.shard) else "the create bore no label"

    await eventually(unlabelled, within_s=60)


async def test_a_pod_that_is_deleted_ends_in_good_order_and_keeps_its_objects(fleet: PodFleet) -> None:
    async with fleet.act("a replica's pod is deleted"):
        await fleet.replaced(f"{REPLICAS}-1", fleet.client.delete(PODS, f"{REPLICAS}-1", namespace=SYSTEM))
    assert fleet.rows[-1].moved == 0


async def test_a_container_that_is_killed_is_restarted_and_keeps_its_objects(fleet: PodFleet) -> None:
    async with fleet.act("a replica's container is killed (out of memory)"):
        fleet.watch.kill(name := f"{REPLICAS}-0")

        async def not_restarted() -> str:
            pod = await fleet.client.get(PODS, name, namespace=SYSTEM)
            return "" if restarts(pod) == 1 else f"{name} was restarted {restarts(pod)} times"

        await eventually(not_restarted, within_s=60)
    assert fleet.rows[-1].moved == 0


async def test_replicas_are_rolled_and_no_object_moves(fleet: PodFleet) -> None:
    async with fleet.act("replicas are rolled (helm upgrade)", within_s=300):
        fleet.workers = 2
        await fleet.upgrade()
    assert fleet.rows[-1].moved == 0


async def test_sharders_are_rolled_and_no_object_moves(fleet: PodFleet) -> None:
    async with fleet.act("sharders are rolled (kubectl rollout restart)", within_s=300):
        await fleet.restart(DEPLOYMENTS, SHARDER)
    assert fleet.rows[-1].moved == 0
    assert fleet.rows[-1].longest_s < BUSY_S


async def test_the_leading_sharder_is_deleted(fleet: PodFleet) -> None:
    async with fleet.act("the leading sharder's pod is deleted"):
        leader = await fleet.wait_leader()
        await fleet.client.delete(PODS, leader, namespace=SYSTEM)

        async def no_other() -> str:
            return "" if await fleet.leader() not in ("", leader) else f"{leader} leads, or none"

        await eventually(no_other, within_s=60)
    assert fleet.rows[-1].moved == 0
    assert fleet.rows[-1].longest_s < BUSY_S


async def test_scaled_up_and_down(fleet: PodFleet) -> None:
    async with fleet.act("scaled up, 3 to 4 replicas"):
        fleet.replicas = 4
        await fleet.upgrade()
    assert fleet.rows[-1].moved > 0
    assert fleet.rows[-1].longest_s < BUSY_S
    async with fleet.act("scaled down, 4 to 3 replicas"):
        fleet.replicas = 3
        await fleet.upgrade()
    assert fleet.rows[-1].moved > 0
    assert fleet.rows[-1].longest_s < BUSY_S


async def test_an_eviction_is_granted_once_and_refused_while_the_pod_is_away(fleet: PodFleet) -> None:
    async with fleet.act("a replica's pod is evicted"):

        async def evict() -> None:
            await fleet.evict(f"{REPLICAS}-2")
            with pytest.raises(RequestFailedError, match="disruption budget") as refused:
                await fleet.evict(f"{REPLICAS}-1")
            assert refused.value.status == 429

        await fleet.replaced(f"{REPLICAS}-2", evict())
    assert fleet.rows[-1].moved == 0


async def test_a_node_is_drained(fleet: PodFleet) -> None:
    async with fleet.act("a node is drained (kubectl drain)", within_s=300):
        await fleet.drain("node-2")
    assert {on(pod) for pod in await fleet.pods("")} == {"node-1"}
    assert fleet.rows[-1].moved == 0
    await fleet.cordon("node-2", unschedulable=False)
    async with fleet.act("replicas and sharders are rolled after it", within_s=300):
        await fleet.restart(DEPLOYMENTS, SHARDER)
        await fleet.restart(STATEFULSETS, REPLICAS)


async def test_a_node_is_lost_and_comes_back(fleet: PodFleet) -> None:
    """Its objects are taken over; its pods stay bound to it, and go on when it is back."""
    node, lost = await _node_of_the_leader(fleet)
    durations = 3 if 3 * len(lost) > fleet.replicas else 2  # more than a third of the members: one more
    takeover_s = durations * SPEC.lease_s + 1  # the standby has observed the Leases, and goes on counting
    act = f"a node is lost with the leading sharder and {len(lost)} of {fleet.replicas} replicas, and comes back"
    async with fleet.act(act, within_s=300):
        before = await fleet.objects.labels()
        fleet.plane.node(node).cut()
        fleet.watch.pause(node)
        try:

            async def still_theirs() -> str:
                owners = {labels.get(KEYS.shard, "") for labels in (await fleet.objects.labels()).values()}
                left = {owner for owner in owners if owner.rpartition("-")[0] in lost}
                return f"objects still belong to {left}" if left or "" in owners else ""

            assert await still_theirs(), before
            await eventually(still_theirs, within_s=takeover_s + 60)

            async def ready() -> str:
                return f"{node} is ready" if is_ready(await fleet.client.get(NODES, node)) else ""

            await eventually(ready, within_s=150)
        finally:
            fleet.plane.node(node).mend()
            fleet.watch.resume(node)
    assert fleet.rows[-1].longest_s < takeover_s + BUSY_S


async def test_a_kubelet_is_frozen_and_no_object_moves(fleet: PodFleet) -> None:
    """The node counts as not ready after 50 s; its pods work on."""

    async def not_ready() -> str:
        return "" if is_ready(await fleet.client.get(NODES, "node-1")) else "node-1 is not ready"

    await eventually(not_ready, within_s=120)  # it may be the node that was lost
    async with fleet.act("a kubelet is frozen until its node is not ready", within_s=300):
        fleet.plane.node("node-1").freeze_kubelet()
        try:

            async def ready() -> str:
                return "node-1 is ready" if is_ready(await fleet.client.get(NODES, "node-1")) else ""

            await eventually(ready, within_s=150)
        finally:
            fleet.plane.node("node-1").wake_kubelet()
    assert fleet.rows[-1].moved == 0
    assert fleet.rows[-1].longest_s < BUSY_S


async def test_an_image_that_does_not_start_stops_the_roll_and_a_rollback_mends_it(fleet: PodFleet) -> None:
    async with fleet.act("an image that does not start, then helm rollback", within_s=300):
        await fleet.upgrade(image=f"{NAME}:missing")

        async def is_stuck() -> str:
            waiting = [reason for pod in await fleet.pods() for reason in _waiting(pod)]
            return (
                ""
                if any("Image" in reason for reason in waiting)
                else f"no pod waits for an image: {waiting}"
            )

        await eventually(is_stuck, within_s=120)
        assert sum(is_ready(pod) for pod in await fleet.pods()) == fleet.replicas - 1
        await fleet.helm.rollback(RELEASE, namespace=SYSTEM)


async def test_what_stays_after_helm_uninstall(fleet: PodFleet) -> None:
    """Pods go; the resource definition, the ring, all objects and their labels stay."""
    before = await fleet.objects.labels()
    await fleet.helm.uninstall(RELEASE, namespace=SYSTEM)

    async def pods_left() -> str:
        return f"{len(left)} pods are left" if (left := await fleet.pods("")) else ""

    await eventually(pods_left, within_s=120)
    await fleet.client.get(CRDS, "controllerrings.ringleader.dev")
    after = await fleet.objects.labels()
    assert set(after) == set(before)
    assert len(await fleet.objects.labels(resource=CONFIGMAPS)) > len(before)


async def _node_of_the_leader(fleet: PodFleet) -> tuple[str, set[str]]:
    """The node of the leading sharder, and the names of the replicas there: some, not all."""
    assert len({on(pod) for pod in await fleet.pods(SHARDER)}) == 2, "one node carries both sharders"
    leader = await fleet.client.get(PODS, await fleet.wait_leader(), namespace=SYSTEM)
    there = {pod["metadata"]["name"] for pod in await fleet.pods() if on(pod) == on(leader)}
    assert 0 < len(there) < fleet.replicas
    return on(leader), there


def _waiting(pod: dict[str, object]) -> list[str]:
    status = pod.get("status")
    containers = status.get("containerStatuses", []) if isinstance(status, dict) else []
    return [str(each["state"]["waiting"].get("reason")) for each in containers if "waiting" in each["state"]]
