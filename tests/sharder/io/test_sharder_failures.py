"""What goes wrong around a sharder: names without Leases, outages, other sharders, rings that cannot be worked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.access.cluster import load_cluster
from kubeio.errors import Invalid, NotFound
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from sharder.rings.store import FINALIZER, ClusterRingStore, Ring
from tests.sharder.io.environment import (
    KEYS,
    RING,
    SITES_WITH_PAGES,
    SharderEnvironment,
    eventually,
    is_balanced,
    open_environment,
    wait_until,
)

RINGS = "controllerrings.ringleader.dev"
SHARDER = "sharder-1"

pytestmark = [pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def env(faulty_plane: ControlPlane) -> AsyncIterator[SharderEnvironment]:
    async with open_environment(faulty_plane, cleared=True) as env:
        yield env


async def stored(env: SharderEnvironment) -> Ring:
    return await env.client.get(CONTROLLER_RINGS, RING, type=Ring)


async def set_finalizers(env: SharderEnvironment, finalizers: list[str] | None) -> None:
    patch = MergePatch({"metadata": {"finalizers": finalizers}})
    await env.client.patch(CONTROLLER_RINGS, RING, patch, type=bytes)


async def recreate(env: SharderEnvironment, **spec: object) -> None:
    """Delete the ring, and create another one under its name."""
    await env.client.request("DELETE", CONTROLLER_RINGS.path(name=RING))
    await set_finalizers(env, None)
    await env.ring(**spec)


async def test_a_name_without_a_lease_is_contested_before_its_objects_move(env: SharderEnvironment) -> None:
    """Its Lease was deleted by hand while its process may still work (trap 2)."""
    await env.ring(maxLeaseDurationSeconds=2)
    await env.shard("a")
    await env.site("forged", labels={KEYS.shard: "ghost-12345678"})
    async with env.sharder():
        await eventually(
            lambda: env.leases.list(f"{KEYS.ring_label}={RING}"),
            lambda found: any(
                lease.metadata.name == "ghost-12345678" and KEYS.contested in lease.metadata.annotations
                for lease in found[0]
            ),
        )
        began = asyncio.get_running_loop().time()
        assert (await env.owners())["forged"] == "ghost-12345678"
        await eventually(env.owners, lambda owners: owners["forged"] == "a-00000001")
        assert 1.8 <= asyncio.get_running_loop().time() - began < 6.0


async def test_a_label_that_names_a_foreign_lease_is_dead_and_that_lease_is_not_touched(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    await env.shard("a")
    foreign = await env.leases.create(Lease(Meta(name="kube-scheduler"), LeaseSpec("scheduler-0", 15)))
    await env.site("forged", labels={KEYS.shard: "kube-scheduler"})
    async with env.sharder():
        await eventually(env.owners, lambda owners: owners["forged"] == "a-00000001")
    after = await env.leases.get("kube-scheduler")
    assert after.metadata.resource_version == foreign.metadata.resource_version


async def test_a_policy_against_tombstones_kills_no_name_and_is_reported(env: SharderEnvironment) -> None:
    """A policy's refusal is a 422 by default: nothing in it says that the name's process ended."""
    await env.ring()
    await env.shard("a")
    await env.site("lost", labels={KEYS.shard: "ghost-12345678"})
    words = "ValidatingAdmissionPolicy 'leases' denied request"
    async with env.sharder():
        await env.plane.faults.add(
            Fault(what="error", verb="create", resource="leases.coordination.k8s.io", code=422, message=words)
        )
        await env.until_condition("MembersUncertain", says="'leases' denied")
        assert (await env.owners())["lost"] == "ghost-12345678"


async def test_a_sharder_that_starts_with_nothing_finishes_what_another_began(
    env: SharderEnvironment,
) -> None:
    await env.ring(maxInFlight=3)
    a = await env.shard("a")
    await env.sites(12)
    async with env.sharder("sharder-1"):
        await env.until_balanced()
        await env.shard("b")
        await eventually(env.drains, lambda drains: len(drains) == 3)
    async with env.sharder("sharder-2"):

        async def finish() -> bool:
            await env.acknowledge_all()
            return await is_balanced(env) and "b-00000001" in (await env.owners()).values()

        await wait_until(finish, within_s=20)
    assert a.name in (await env.owners()).values()


async def test_a_standby_that_takes_over_knows_how_long_a_shard_has_been_silent(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    silent = await env.shard("a", duration_s=2)
    await env.shard("b", duration_s=2)
    await env.sites(6)
    async with env.sharder("standby", leads=False) as standby:
        async with env.sharder("leader"):
            await env.until_balanced()
        await silent.fall_silent()
        await asyncio.sleep(6.5)  # three durations: of two shards one is more than a third
        standby.lead()
        await eventually(silent.holder, "sharder:standby", within_s=1.5)


async def test_two_sharders_at_once_never_give_an_object_two_owners(env: SharderEnvironment) -> None:
    """Leadership is economy: with two that act, every write is still conditional."""
    await env.ring()
    async with env.sharder("sharder-1"), env.sharder("sharder-2"):
        await env.join("ab")
        await env.sites(30)
        await env.until_balanced()
    moves: dict[str, list[str]] = {}
    for write in env.writes():
        if write.resource == "websites.example.com" and write.code == 200 and write.labels_after:
            moves.setdefault(write.name, []).append(write.labels_after[KEYS.shard])
    assert len(moves) == 30
    assert all(len(owners) == 1 for owners in moves.values()), moves


async def test_a_ring_of_an_unknown_resource_says_so_and_works_once_it_is_served(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=[{"group": "example.com", "resource": "webistes"}])
    await env.shard("a")
    await env.site("one")
    async with env.sharder():
        await env.until_condition("Ready", status="False", says="websites")
        await env.ring()
        await eventually(env.owners, lambda owners: owners["one"] == "a-00000001")


async def test_a_ring_that_cannot_be_worked_names_the_field_in_its_status(env: SharderEnvironment) -> None:
    pages = {"group": "", "resource": "configmaps"}
    await env.ring(resources=[SITES_WITH_PAGES, pages])  # no schema sees it: a kind that would have two keys
    async with env.sharder():
        await env.until_condition("Ready", reason="InvalidSpec", says="spec.resources")
        await asyncio.sleep(0.5)
        writes = [w for w in env.writes() if w.user == "sharder-1"]
        assert len(writes) == 1, "a refused ring is told once and left until its spec changes"


async def test_what_is_immutable_stays_so_over_a_fail_over(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    async with env.sharder("sharder-1"):
        await env.until_balanced()
    try:
        await env.ring(leaseNamespace="elsewhere")
    except Invalid as refused:  # the definition's rule, where the server evaluates it
        assert "was default and is immutable" in refused.message  # noqa: PT017
        return
    async with env.sharder("sharder-2"):
        await env.until_condition("Ready", reason="InvalidSpec", says="spec.leaseNamespace")


async def test_the_finalizer_of_another_ring_of_that_name_stays(env: SharderEnvironment) -> None:
    """The last write of a former leader arrives when another ring has the name, and its objects have owners."""
    await env.ring()
    await set_finalizers(env, [FINALIZER])
    user = await env.plane.kubeconfig_for(SHARDER)
    async with Client(load_cluster(kubeconfig=str(user))) as client:
        store = ClusterRingStore(client, RING, uid=(await stored(env)).metadata.uid)
        await env.plane.faults.add(Fault(what="hold", user=SHARDER, verb="patch", resource=RINGS))
        leaving = asyncio.create_task(store.leave())
        await eventually(env.plane.faults.active, lambda faults: faults[0].hits > 0)
        await recreate(env)
        await set_finalizers(env, [FINALIZER])
        await env.plane.faults.clear()
        with pytest.raises(Invalid):
            await leaving
        with pytest.raises(NotFound):
            await store.leave()
    assert (await stored(env)).metadata.finalizers == [FINALIZER]


async def test_another_ring_of_that_name_may_have_its_leases_elsewhere(env: SharderEnvironment) -> None:
    """A sharder that saw neither the deletion nor the creation works the new ring as one that it never saw."""
    await env.ring()
    async with env.sharder():
        await env.until_condition("Balanced", reason="NoMembers")
        cut = await env.plane.faults.add(Fault(what="cut", user=SHARDER, resource=RINGS))
        await recreate(env, leaseNamespace="kube-system")
        await env.plane.faults.add(Fault(what="expire_watches", user=SHARDER, resource=RINGS, count=1))
        await env.plane.faults.clear(cut)
        await env.until_condition("Balanced", reason="NoMembers")


async def test_a_new_leader_writes_nothing_to_another_ring_of_the_name_that_it_knows(
    env: SharderEnvironment,
) -> None:
    """Its ring watch is silent, and shows neither the deletion nor the creation."""
    await env.ring()
    async with env.sharder(leads=False) as rings:
        await wait_until(rings.synced.is_set)
        await set_finalizers(env, [FINALIZER])
        await env.plane.faults.add(Fault(what="mute_watches", user=SHARDER, resource=RINGS))
        await recreate(env, leaseNamespace="kube-system")
        reads = await env.plane.faults.add(Fault(what="latency", user=SHARDER, verb="get", resource=RINGS))
        rings.lead()
        await eventually(partial(env.plane.faults.hits, reads), lambda hits: hits > 1)
        assert (await stored(env)).metadata.finalizers == []
        await env.plane.faults.clear()
        await env.plane.faults.add(Fault(what="expire_watches", user=SHARDER, resource=RINGS, count=1))
        await env.until_condition("Balanced", reason="NoMembers")


async def test_a_ring_worked_by_another_sharder_is_left_alone(env: SharderEnvironment) -> None:
    """Trap 23: two sharder kinds on one ring."""
    await env.ring()
    other = MergePatch({"status": {"sharder": "example.org/other"}})
    await env.client.patch(CONTROLLER_RINGS, RING, other, subresource="status", type=bytes)
    await env.shard("a")
    await env.site("one")
    async with env.sharder():
        await asyncio.sleep(1.5)
        assert (await env.owners())["one"] == ""
        assert not [w for w in env.writes() if w.user == "sharder-1"]
        given_up = MergePatch({"status": {"sharder": None}})
        await env.client.patch(CONTROLLER_RINGS, RING, given_up, subresource="status", type=bytes)
        await env.until_balanced()


async def test_lost_events_are_found_by_the_audit(env: SharderEnvironment) -> None:
    """Half-dead watches show nothing: the audit's own lists do."""
    await env.ring(auditIntervalSeconds=1)
    await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
        await env.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await env.site("unseen")
        await eventually(env.owners, lambda owners: owners["unseen"] == "a-00000001", within_s=15)


async def test_the_audit_goes_on_while_the_ring_cannot_converge(env: SharderEnvironment) -> None:
    """A paused ring with an object at the wrong place has always something left to do."""
    await env.ring(auditIntervalSeconds=1, paused=True)
    a, _ = await env.join("ab")
    await env.sites(12, labels={KEYS.shard: a.name})
    async with env.sharder():
        await env.until_condition("Balanced", reason="Paused")
        await env.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await env.site("unseen")
        await eventually(env.owners, lambda owners: owners["unseen"] != "", within_s=15)


async def test_a_pass_brings_what_the_unowned_watch_does_not_show(env: SharderEnvironment) -> None:
    """An owner that lived and died between two switches of the watch: the pass meets its objects."""
    await env.ring()
    await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
        dead = await env.shard("b")
        await dead.release()
        await env.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await env.site("left", labels={KEYS.shard: dead.name})
        await env.shard("c")  # the ring changes: a pass begins
        await env.plane.faults.clear()
        await eventually(
            env.owners, lambda owners: owners["left"] in ("a-00000001", "c-00000001"), within_s=20
        )
