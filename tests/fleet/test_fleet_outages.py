"""The API server goes away, Leases vanish, watches die, sharders die half-way: nothing is relabelled for nothing.

Traps of the protocol, section 9: 2 (Lease deleted while it works), 7 (leader suspended, another finishes the
work), 9 (labels removed and forged), 10 (object deleted and created again under its name), 16 (API down beyond 2d).
"""

from __future__ import annotations

import asyncio

import pytest

from kubeio.resource import LEASES
from ringleader.testing.fleet import Fleet
from ringleader.testing.ownership_checks import LEASES as LEASE_WRITES
from tests.fleet.judging import judge

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]


async def test_after_an_outage_of_more_than_two_leases_nothing_is_relabelled(fleet: Fleet) -> None:
    await judge(fleet)
    owners, since = await fleet.owners(), fleet.clock.now()
    await fleet.plane.restart(away_s=2.5 * fleet.spec.lease_s)
    back = fleet.clock.now()
    evidence = await judge(fleet)
    await asyncio.sleep(2 * fleet.spec.lease_s)
    evidence = await judge(fleet)
    movement = evidence.movement(since=since, until=fleet.clock.now())
    assert (movement.moved, movement.renamed) == (0, 0)
    assert await fleet.owners() == owners
    assert back - since > 2 * fleet.spec.lease_s


async def test_the_leading_sharder_dies_while_objects_move_and_the_next_one_finishes(fleet: Fleet) -> None:
    await fleet.add_member("replica-4")
    await fleet.wait_for(lambda: fleet.life("replica-4") is not None, "replica-4 to be up")
    first = await fleet.kill_leader()
    await judge(fleet)
    assert await fleet.leader() in fleet.sharders
    assert fleet.sharders[first].current is not None


async def test_a_leading_sharder_frozen_in_its_work_does_no_harm_when_it_wakes(fleet: Fleet) -> None:
    """Trap 7: it decided, slept, and another has done the work meanwhile."""
    leader = await fleet.leader()
    await fleet.leave("replica-4")
    fleet.sharders[leader].freeze()

    async def another_leads() -> bool:
        return await fleet.leader() != leader

    await fleet.wait_for(another_leads, "another sharder to lead", within_s=30)
    await fleet.wait_converged()
    fleet.sharders[leader].wake()
    await asyncio.sleep(fleet.spec.lease_s)
    await judge(fleet)


async def test_a_lease_deleted_by_hand_costs_its_owner_the_place_and_nothing_else(fleet: Fleet) -> None:
    """Trap 2: the shard still works; its objects stay until it must have noticed."""
    victim = "replica-2"
    lost = fleet.life(victim)
    assert lost is not None
    await fleet.client.delete(LEASES, lost, namespace=fleet.spec.lease_namespace)
    exits = fleet.members[victim].exits
    before = len(exits)
    await fleet.wait_for(lambda: len(exits) > before, f"{victim} to notice", within_s=20)
    assert exits[-1].code == 3
    evidence = await judge(fleet)
    created = [
        w for w in evidence.writes if w.resource == LEASE_WRITES and w.name == lost and w.verb == "create"
    ]
    assert all(write.user != victim for write in created[1:]), "a shard never makes its Lease anew"


async def test_labels_taken_away_and_forged_are_put_right(fleet: Fleet) -> None:
    """Trap 9: one label removed, one forged to a name that has no Lease."""
    bare, forged = fleet.objects.refs[0], fleet.objects.refs[1]
    key = fleet.spec.keys.shard
    await fleet.client.merge(
        bare.resource, bare.name, {"metadata": {"labels": {key: None}}}, namespace=bare.namespace
    )
    labels = {"metadata": {"labels": {key: "nobody-00000000"}}}
    await fleet.client.merge(forged.resource, forged.name, labels, namespace=forged.namespace)
    await fleet.wait_converged()
    assert set((await fleet.owners()).values()) <= set(fleet.lives())


async def test_an_object_deleted_and_created_again_while_it_moves_is_a_new_one(fleet: Fleet) -> None:
    """Trap 10: what was decided for the old object is not done to the new one of its name."""
    await judge(fleet)
    victims = fleet.objects.refs[:5]
    await fleet.add_member("replica-4")
    for ref in victims:
        await fleet.client.delete(ref.resource, ref.name, namespace=ref.namespace)
        fleet.objects.refs.remove(ref)
        fresh = await fleet.objects.create(ref.name)
        assert fresh.uid != ref.uid
    await judge(fleet)
    await fleet.leave("replica-4")
    await judge(fleet)
