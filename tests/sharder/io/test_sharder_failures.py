"""What goes wrong around a sharder: names without Leases, outages, other sharders, rings that cannot be worked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from tests.sharder.io.ground import KEYS, RING, Ground, eventually, is_balanced, open_ground, wait_until

pytestmark = [pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def ground(faulty_plane: ControlPlane) -> AsyncIterator[Ground]:
    async with open_ground(faulty_plane, cleared=True) as ground:
        yield ground


async def test_a_name_without_a_lease_is_contested_before_its_objects_move(ground: Ground) -> None:
    """Its Lease was deleted by hand while its process may still work (trap 2)."""
    await ground.ring(maxLeaseDurationSeconds=2)
    await ground.shard("a")
    await ground.site("forged", labels={KEYS.shard: "ghost-12345678"})
    async with ground.sharder():
        await eventually(
            lambda: ground.leases.list(f"{KEYS.ring_label}={RING}"),
            lambda found: any(
                lease.metadata.name == "ghost-12345678" and KEYS.contested in lease.metadata.annotations
                for lease in found[0]
            ),
        )
        began = asyncio.get_running_loop().time()
        assert (await ground.owners())["forged"] == "ghost-12345678"
        await eventually(ground.owners, lambda owners: owners["forged"] == "a-00000001")
        assert 1.8 <= asyncio.get_running_loop().time() - began < 6.0


async def test_a_label_that_names_a_foreign_lease_is_dead_and_that_lease_is_not_touched(
    ground: Ground,
) -> None:
    await ground.ring()
    await ground.shard("a")
    foreign = await ground.leases.create(Lease(Meta(name="kube-scheduler"), LeaseSpec("scheduler-0", 15)))
    await ground.site("forged", labels={KEYS.shard: "kube-scheduler"})
    async with ground.sharder():
        await eventually(ground.owners, lambda owners: owners["forged"] == "a-00000001")
    after = await ground.leases.get("kube-scheduler")
    assert after.metadata.resource_version == foreign.metadata.resource_version


async def test_a_policy_against_tombstones_kills_no_name_and_is_reported(ground: Ground) -> None:
    """A policy's refusal is a 422 by default: nothing in it says that the name's process ended."""
    await ground.ring()
    await ground.shard("a")
    await ground.site("lost", labels={KEYS.shard: "ghost-12345678"})
    words = "ValidatingAdmissionPolicy 'leases' denied request"
    async with ground.sharder():
        await ground.plane.faults.add(
            Fault(what="error", verb="create", resource="leases.coordination.k8s.io", code=422, message=words)
        )
        await ground.until_condition("MembersUncertain", says="'leases' denied")
        assert (await ground.owners())["lost"] == "ghost-12345678"


async def test_a_sharder_that_starts_with_nothing_finishes_what_another_began(ground: Ground) -> None:
    await ground.ring(maxInFlight=3)
    a = await ground.shard("a")
    await ground.sites(12)
    async with ground.sharder("sharder-1"):
        await ground.until_balanced()
        await ground.shard("b")
        await eventually(ground.drains, lambda drains: len(drains) == 3)
    async with ground.sharder("sharder-2"):

        async def finish() -> bool:
            await ground.acknowledge_all()
            return await is_balanced(ground) and "b-00000001" in (await ground.owners()).values()

        await wait_until(finish, within_s=20)
    assert a.name in (await ground.owners()).values()


async def test_a_standby_that_takes_over_knows_how_long_a_shard_has_been_silent(ground: Ground) -> None:
    await ground.ring()
    silent = await ground.shard("a", duration_s=2)
    await ground.shard("b", duration_s=2)
    await ground.sites(6)
    async with ground.sharder("standby", leads=False) as standby:
        async with ground.sharder("leader"):
            await ground.until_balanced()
        await silent.fall_silent()
        await asyncio.sleep(6.5)  # three durations: of two shards one is more than a third
        standby.lead()
        await eventually(silent.holder, "sharder:standby", within_s=1.5)


async def test_two_sharders_at_once_never_give_an_object_two_owners(ground: Ground) -> None:
    """Leadership is economy: with two that act, every write is still conditional."""
    await ground.ring()
    async with ground.sharder("sharder-1"), ground.sharder("sharder-2"):
        await ground.join("ab")
        await ground.sites(30)
        await ground.until_balanced()
    moves: dict[str, list[str]] = {}
    for write in ground.writes():
        if write.resource == "websites.example.com" and write.code == 200 and write.labels_after:
            moves.setdefault(write.name, []).append(write.labels_after[KEYS.shard])
    assert len(moves) == 30
    assert all(len(owners) == 1 for owners in moves.values()), moves


async def test_a_ring_of_an_unknown_resource_says_so_and_works_once_it_is_served(ground: Ground) -> None:
    await ground.ring(resources=[{"group": "example.com", "resource": "webistes"}])
    await ground.shard("a")
    await ground.site("one")
    async with ground.sharder():
        await ground.until_condition("Ready", status="False", says="websites")
        await ground.ring()
        await eventually(ground.owners, lambda owners: owners["one"] == "a-00000001")


async def test_a_ring_that_cannot_be_worked_names_the_field_in_its_status(ground: Ground) -> None:
    await ground.ring(key="Label")
    async with ground.sharder():
        await ground.until_condition("Ready", reason="InvalidSpec", says="spec.keyLabel")
        await asyncio.sleep(0.5)
        writes = [w for w in ground.writes() if w.user == "sharder-1"]
        assert len(writes) == 1, "a refused ring is told once and left until its spec changes"


async def test_what_is_immutable_stays_so_over_a_fail_over(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder("sharder-1"):
        await ground.until_balanced()
    await ground.ring(leaseNamespace="elsewhere")
    async with ground.sharder("sharder-2"):
        await ground.until_condition("Ready", reason="InvalidSpec", says="spec.leaseNamespace")


async def test_a_ring_worked_by_another_sharder_is_left_alone(ground: Ground) -> None:
    """Trap 23: two sharder kinds on one ring."""
    await ground.ring()
    other = MergePatch({"status": {"sharder": "example.org/other"}})
    await ground.client.patch(CONTROLLER_RINGS, RING, other, subresource="status", type=bytes)
    await ground.shard("a")
    await ground.site("one")
    async with ground.sharder():
        await asyncio.sleep(1.5)
        assert (await ground.owners())["one"] == ""
    assert not [w for w in ground.writes() if w.user == "sharder-1"]


async def test_lost_events_are_found_by_the_audit(ground: Ground) -> None:
    """Half-dead watches show nothing: the audit's own lists do."""
    await ground.ring(auditIntervalSeconds=1)
    await ground.shard("a")
    async with ground.sharder():
        await ground.until_balanced()
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("unseen")
        await eventually(ground.owners, lambda owners: owners["unseen"] == "a-00000001", within_s=15)


async def test_the_audit_goes_on_while_the_ring_cannot_converge(ground: Ground) -> None:
    """A paused ring with an object at the wrong place has always something left to do."""
    await ground.ring(auditIntervalSeconds=1, paused=True)
    a, _ = await ground.join("ab")
    await ground.sites(12, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await ground.until_condition("Balanced", reason="Paused")
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("unseen")
        await eventually(ground.owners, lambda owners: owners["unseen"] != "", within_s=15)


async def test_a_pass_brings_what_the_unowned_watch_does_not_show(ground: Ground) -> None:
    """An owner that lived and died between two switches of the watch: the pass meets its objects."""
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder():
        await ground.until_balanced()
        dead = await ground.shard("b")
        await dead.release()
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("left", labels={KEYS.shard: dead.name})
        await ground.shard("c")  # the ring changes: a pass begins
        await ground.plane.faults.clear()
        await eventually(
            ground.owners, lambda owners: owners["left"] in ("a-00000001", "c-00000001"), within_s=20
        )
