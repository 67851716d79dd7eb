"""What goes wrong around a sharder: names without Leases, outages, other sharders, rings that cannot be worked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from tests.sharder.io.ground import KEYS, RING, Ground, is_balanced, open_ground, wait_until

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

        async def has_tombstone() -> bool:
            leases, _ = await ground.leases.list(f"{KEYS.ring_label}={RING}")
            return any(
                lease.metadata.name == "ghost-12345678" and KEYS.contested in lease.metadata.annotations
                for lease in leases
            )

        await wait_until(has_tombstone)
        began = asyncio.get_running_loop().time()
        assert (await ground.owners())["forged"] == "ghost-12345678"

        async def moved() -> bool:
            return (await ground.owners())["forged"] == "a-00000001"

        await wait_until(moved)
        assert 1.8 <= asyncio.get_running_loop().time() - began < 6.0


async def test_a_label_that_names_a_foreign_lease_is_dead_and_that_lease_is_not_touched(
    ground: Ground,
) -> None:
    await ground.ring()
    await ground.shard("a")
    from kubeio.models import Lease, LeaseSpec, Meta

    foreign = await ground.leases.create(Lease(Meta(name="kube-scheduler"), LeaseSpec("scheduler-0", 15)))
    await ground.site("forged", labels={KEYS.shard: "kube-scheduler"})
    async with ground.sharder():

        async def moved() -> bool:
            return (await ground.owners())["forged"] == "a-00000001"

        await wait_until(moved)
    after = await ground.leases.get("kube-scheduler")
    assert after.metadata.resource_version == foreign.metadata.resource_version


async def test_a_policy_against_tombstones_kills_no_name_and_is_told(ground: Ground) -> None:
    """A policy's refusal is a 422 by default: nothing in it says that the name's process ended."""
    await ground.ring()
    await ground.shard("a")
    await ground.site("lost", labels={KEYS.shard: "ghost-12345678"})
    words = "ValidatingAdmissionPolicy 'leases' denied request"
    refused = Fault(
        what="error", verb="create", resource="leases.coordination.k8s.io", code=422, message=words
    )
    async with ground.sharder():
        await ground.plane.faults.add(refused)

        async def is_told() -> bool:
            ring = await ground.client.get(CONTROLLER_RINGS, RING, type=dict)
            conditions = ring.get("status", {}).get("conditions", [])
            return any(
                each["type"] == "MembersUncertain" and "'leases' denied" in each["message"]
                for each in conditions
            )

        await wait_until(is_told)
        assert (await ground.owners())["lost"] == "ghost-12345678"


async def test_after_an_outage_of_the_api_nothing_is_relabelled(ground: Ground) -> None:
    """Longer than two durations nobody could renew, and nobody could see that (trap 16)."""
    await ground.ring()
    for member in ("a", "b", "c"):
        await ground.shard(member)
    await ground.sites(12)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        before = await ground.owners()
        await ground.plane.restart(away_s=3.0)
        await asyncio.sleep(4.0)
        assert await ground.owners() == before
        leases, _ = await ground.leases.list(f"{KEYS.ring_label}={RING}")
        assert [lease.spec.holder_identity for lease in leases] == [lease.metadata.name for lease in leases]


async def test_a_sharder_that_starts_with_nothing_finishes_what_another_began(ground: Ground) -> None:
    await ground.ring(maxInFlight=3)
    a = await ground.shard("a")
    await ground.sites(12)
    async with ground.sharder("sharder-1"):
        await wait_until(lambda: is_balanced(ground))
        await ground.shard("b")

        async def some_asked() -> bool:
            return len(await ground.drains()) == 3

        await wait_until(some_asked)
    async with ground.sharder("sharder-2"):

        async def finish() -> bool:
            for name in await ground.drains():
                await ground.acknowledge(name)
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
            await wait_until(lambda: is_balanced(ground))
        await silent.fall_silent()
        await asyncio.sleep(6.5)  # three durations: of two shards one is more than a third
        standby.lead()

        async def taken() -> bool:
            return await silent.holder() == "sharder:standby"

        await wait_until(taken, within_s=1.5)


async def test_two_sharders_at_once_never_give_an_object_two_owners(ground: Ground) -> None:
    """Leadership is economy: with two that act, every write is still conditional."""
    await ground.ring()
    async with ground.sharder("sharder-1"), ground.sharder("sharder-2"):
        await ground.shard("a")
        await ground.shard("b")
        await ground.sites(30)
        await wait_until(lambda: is_balanced(ground))
    moves: dict[str, list[str]] = {}
    for write in ground.writes():
        if write.resource == "websites.example.com" and write.code == 200 and write.labels_after:
            moves.setdefault(write.name, []).append(write.labels_after[KEYS.shard])
    assert len(moves) == 30
    assert all(len(owners) == 1 for owners in moves.values()), moves


async def test_server_failures_and_throttling_only_delay_the_work(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.plane.faults.add(
        Fault(what="error", verb="patch", resource="websites.example.com", count=8, code=500)
    )
    await ground.plane.faults.add(
        Fault(what="error", verb="patch", resource="websites.example.com", count=8, code=429, retry_after_s=1)
    )
    await ground.sites(20)
    async with ground.sharder():

        async def all_owned() -> bool:
            return set((await ground.owners()).values()) == {"a-00000001"}

        await wait_until(all_owned, within_s=30)


async def test_a_ring_of_an_unknown_resource_says_so_and_works_once_it_is_served(ground: Ground) -> None:
    await ground.ring(resources=[{"group": "example.com", "resource": "webistes"}])
    await ground.shard("a")
    await ground.site("one")
    async with ground.sharder():

        async def says_so() -> bool:
            condition = await ground.condition("Ready")
            return condition.get("status") == "False" and "websites" in str(condition["message"])

        await wait_until(says_so)
        await ground.ring()

        async def owned() -> bool:
            return (await ground.owners())["one"] == "a-00000001"

        await wait_until(owned)


async def test_a_ring_that_cannot_be_worked_names_the_field_in_its_status(ground: Ground) -> None:
    await ground.ring(key="Label")
    async with ground.sharder():

        async def says_so() -> bool:
            condition = await ground.condition("Ready")
            return condition.get("reason") == "InvalidSpec" and "spec.keyLabel" in str(condition["message"])

        await wait_until(says_so)
        await asyncio.sleep(0.5)
        writes = [w for w in ground.writes() if w.user == "sharder-1"]
        assert len(writes) == 1, "a refused ring is told once and left until its spec changes"


async def test_what_is_immutable_stays_so_over_a_fail_over(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder("sharder-1"):
        await wait_until(lambda: is_balanced(ground))
    await ground.ring(leaseNamespace="elsewhere")
    async with ground.sharder("sharder-2"):

        async def says_so() -> bool:
            condition = await ground.condition("Ready")
            return condition.get("reason") == "InvalidSpec" and "spec.leaseNamespace" in str(
                condition["message"]
            )

        await wait_until(says_so)


async def test_a_ring_worked_by_another_sharder_is_left_alone(ground: Ground) -> None:
    """Trap 23: two sharder kinds on one ring."""
    await ground.ring()
    await ground.client.patch(
        CONTROLLER_RINGS,
        RING,
        MergePatch({"status": {"sharder": "example.org/other"}}),
        subresource="status",
        type=bytes,
    )
    await ground.shard("a")
    await ground.site("one")
    async with ground.sharder():
        await asyncio.sleep(1.5)
        assert (await ground.owners())["one"] == ""
    assert not [w for w in ground.writes() if w.user == "sharder-1"]


async def test_a_missing_right_is_named_in_the_condition(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.plane.faults.add(
        Fault(what="error", resource="websites.example.com", user="sharder-1", code=403)
    )
    async with ground.sharder():

        async def says_so() -> bool:
            condition = await ground.condition("Ready")
            return condition.get("reason") == "Forbidden" and condition.get("status") == "False"

        await wait_until(says_so)


async def test_lost_events_are_found_by_the_audit(ground: Ground) -> None:
    """Half-dead watches show nothing: the audit's own lists do."""
    await ground.ring(auditIntervalSeconds=1)
    await ground.shard("a")
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("unseen")

        async def owned() -> bool:
            return (await ground.owners())["unseen"] == "a-00000001"

        await wait_until(owned, within_s=15)


async def test_the_audit_goes_on_while_the_ring_cannot_converge(ground: Ground) -> None:
    """A paused ring with an object at the wrong place has always something left to do."""
    await ground.ring(auditIntervalSeconds=1, paused=True)
    a = await ground.shard("a")
    await ground.shard("b")
    for number in range(12):
        await ground.site(f"site-{number}", labels={KEYS.shard: a.name})
    async with ground.sharder():

        async def paused() -> bool:
            return (await ground.condition("Balanced")).get("reason") == "Paused"

        await wait_until(paused)
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("unseen")

        async def owned() -> bool:
            return (await ground.owners())["unseen"] != ""

        await wait_until(owned, within_s=15)


async def test_a_pass_brings_what_the_unowned_watch_does_not_show(ground: Ground) -> None:
    """An owner that lived and died between two switches of the watch: the pass meets its objects."""
    await ground.ring()
    await ground.shard("a")
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        dead = await ground.shard("b")
        await dead.release()
        await ground.plane.faults.add(Fault(what="mute_watches", resource="websites.example.com"))
        await ground.site("left", labels={KEYS.shard: dead.name})

        async def moved() -> bool:
            return (await ground.owners())["left"] in ("a-00000001", "c-00000001")

        await ground.shard("c")  # the ring changes: a pass begins
        await ground.plane.faults.clear()
        await wait_until(moved, within_s=20)
