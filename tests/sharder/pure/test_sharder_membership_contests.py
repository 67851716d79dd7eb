"""Names that are taken, contested, dead and forgotten: the protocol's section 4, in simulations of Leases."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kubeio.models import Lease, LeaseSpec, Meta
from sharder.membership.actions import ClearContested, CreateTombstone, DeleteOrphan, NeedOrphanCheck
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.view import OwnerState
from tests.sharder.pure.lease_simulation import NAMESPACE, LeaseSimulation, fleet, is_dead, make_spec

# ---- take before move, contested, tombstones ----------------------------------------------------------------------


def test_a_lease_deleted_by_hand_is_contested_for_the_longest_duration_and_only_then_dead() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    deleted_at = sim.at
    sim.run(59)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    assert sim.keys.contested in sim.leases["m1-00000001"].metadata.annotations
    assert sim.leases["m1-00000001"].metadata.annotations[sim.keys.member] == "m1"
    sim.run(2)
    assert is_dead(sim.view(), "m1-00000001")
    (cleared_at,) = (at for at, intent in sim.decided if isinstance(intent, ClearContested))
    assert cleared_at - deleted_at >= 60


@pytest.mark.parametrize("holder", ["a-person", "m2-00000001"])
def test_a_lease_with_a_foreign_holder_is_taken_contested_and_reported(holder: str) -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.edit("m1-00000001", holder_identity=holder)
    sim.read()
    (problem,) = sim.view().problems
    assert problem.field == "leases/m1-00000001.spec.holderIdentity"
    edited_at = sim.at
    sim.run(59)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    assert sim.leases["m1-00000001"].spec.holder_identity == "sharder:sharder-1"
    sim.run(2)
    assert is_dead(sim.view(), "m1-00000001")
    (cleared_at,) = (at for at, intent in sim.decided if isinstance(intent, ClearContested))
    assert cleared_at - edited_at >= 60


def test_a_name_that_has_no_lease_gets_a_tombstone_and_its_objects_stay() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.machine.unknown_name_seen("m9-00000001", at=sim.at)
    assert sim.view().owner_state("m9-00000001") is OwnerState.CONTESTED
    sim.run(59)
    assert sim.view().owner_state("m9-00000001") is OwnerState.CONTESTED
    assert sim.leases["m9-00000001"].spec.holder_identity == "sharder:sharder-1"
    sim.run(3)
    assert is_dead(sim.view(), "m9-00000001")


def test_a_policy_that_refuses_a_tombstone_kills_no_name_and_is_reported_until_it_gives_way() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.read()
    sim.machine.tombstone_refused("m1-00000001", why="policy says no")
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    (problem,) = sim.view().problems
    assert "policy says no" in problem.problem
    assert sim.wishes() == [CreateTombstone("m1-00000001", "m1", 15.0)]
    sim.act()
    assert sim.view().problems == ()
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_sharder_that_starts_during_the_wait_sees_it_through_itself() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.run(55)
    sim.machine = Membership(sim.spec)
    sim.run(59)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(2)
    assert is_dead(sim.view(), "m1-00000001")


def test_a_standby_that_watched_need_not_begin_the_wait_again() -> None:
    sim = fleet(max_lease_duration_s=60)
    standby = Membership(sim.spec)
    sim.standbys.append(standby)
    sim.run(1)
    sim.delete("m1-00000001")
    sim.run(55)
    sim.machine, sim.standbys = standby, []
    sim.run(6)
    assert is_dead(sim.view(), "m1-00000001")


def test_a_lease_with_a_longer_duration_than_the_ring_allows_now_is_waited_for_in_full() -> None:
    sim = fleet(duration_s=5, max_lease_duration_s=60)
    sim.join("m9-00000001", member="m9", duration_s=50)
    sim.run(20)
    sim.machine.configure(make_spec(max_lease_duration_s=10))
    sim.delete("m9-00000001")
    deleted_at = sim.at
    sim.run(70)
    (cleared_at,) = (at for at, intent in sim.decided if isinstance(intent, ClearContested))
    assert cleared_at - deleted_at >= 50


def test_a_sharder_that_never_saw_a_lease_waits_as_long_as_other_shards_may_work() -> None:
    """The maximum was lowered under shards that run, and one's Lease was deleted before this sharder started."""
    sim = fleet(duration_s=50, max_lease_duration_s=60)
    sim.machine = Membership(make_spec(max_lease_duration_s=10))
    sim.delete("m1-00000001")
    sim.run(1)
    assert sim.machine.unknown_name_seen("m1-00000001", at=sim.at)
    sim.run(49)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(5)
    assert is_dead(sim.view(), "m1-00000001")


def test_a_contest_of_an_unseen_lease_outlasts_the_shards_that_show_how_long_it_may_be() -> None:
    """The others release their Leases during the contest: none shows the former maximum any more."""
    sim = fleet(duration_s=50, max_lease_duration_s=60)
    sim.machine = Membership(make_spec(max_lease_duration_s=10))
    sim.delete("m1-00000001")
    sim.run(1)
    assert sim.machine.unknown_name_seen("m1-00000001", at=sim.at)
    sim.run(5)
    for name in sorted(sim.leases):
        if not name.startswith("m1"):
            sim.release(name)
    sim.run(30)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_contest_waits_for_the_maximum_that_the_ring_had_before_until_that_is_forgotten() -> None:
    """No Lease is left, and this sharder never saw one: the ring's status says what the maximum was."""
    sim = LeaseSimulation(max_lease_duration_s=1)
    sim.machine.longest_lease_s = 60
    sim.run(1)
    assert sim.machine.unknown_name_seen("m1-00000001", at=sim.at)
    sim.run(50)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(11)
    assert is_dead(sim.view(), "m1-00000001")
    sim.machine.longest_lease_s = 0
    assert sim.machine.unknown_name_seen("m2-00000001", at=sim.at)
    sim.run(2)
    assert is_dead(sim.view(), "m2-00000001")


def test_a_contested_lease_that_a_new_sharder_finds_waits_for_the_former_maximum_too() -> None:
    sim = fleet(duration_s=15, max_lease_duration_s=20)
    sim.delete("m1-00000001")
    sim.run(1)
    sim.machine = Membership(make_spec(max_lease_duration_s=1))
    sim.machine.longest_lease_s = 60
    sim.run(59)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(3)
    assert is_dead(sim.view(), "m1-00000001")


def test_a_contest_that_changes_hands_begins_anew() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.run(40)
    sim.edit("m1-00000001", holder_identity="sharder:other", lease_transitions=9)
    sim.run(40)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(25)
    assert is_dead(sim.view(), "m1-00000001")


def test_two_sharders_that_bury_the_same_name_wait_for_the_same_contest() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.read()
    late = Membership(sim.spec)
    late.observe_list(sim.visible(), resource_version="900", begun_at=sim.at, at=sim.at)
    late.unknown_name_seen("m1-00000001", at=sim.at)
    sim.act()
    late.observe_one(sim.leases["m1-00000001"], at=sim.at)
    assert late.view(at=sim.at).owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_forced_owner_is_contested_before_it_is_dead() -> None:
    sim = fleet(max_lease_duration_s=20)
    sim.machine.force("m1-00000001")
    sim.run(0.5)
    assert [take.contested for _, take in sim.takes_of("m1-00000001")] == [True]
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(21)
    assert is_dead(sim.view(), "m1-00000001")


def test_forcing_a_name_that_released_needs_no_contest() -> None:
    sim = fleet()
    sim.release("m1-00000001")
    sim.machine.force("m1-00000001")
    sim.run(1)
    assert [take.contested for _, take in sim.takes_of("m1-00000001")] == [False]


def test_a_contest_does_not_begin_anew_if_its_name_is_to_be_forced() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.run(40)
    sim.machine.force("m1-00000001")
    sim.run(22)
    assert sim.takes_of("m1-00000001") == []
    assert is_dead(sim.view(), "m1-00000001")


def test_a_place_that_is_held_open_is_not_taken_by_force_nor_is_the_next_life_that_fills_it() -> None:
    sim = LeaseSimulation(hold_s=30)
    sim.join("m1-00000001", member="m1", hold=True)
    sim.run(20)
    sim.release("m1-00000001")
    sim.run(1)
    sim.machine.force("m1-00000001")
    sim.run(1)
    assert sim.state("m1-00000001") is ShardState.RELEASED
    sim.edit("m1-00000001", holder_identity="m1-00000001")
    sim.renew("m1-00000001")
    sim.run(1)
    assert sim.state("m1-00000001") is ShardState.READY
    assert sim.takes_of("m1-00000001") == []


def test_an_unrelated_lease_is_never_touched() -> None:
    sim = fleet()
    sim.write(Lease(Meta(name="kube-scheduler", namespace=NAMESPACE), LeaseSpec("node-1_abc", 15)))
    untouched = sim.leases["kube-scheduler"]
    sim.machine.unknown_name_seen("kube-scheduler", at=sim.at)
    sim.run(200)
    assert sim.leases["kube-scheduler"] == untouched
    assert is_dead(sim.view(), "kube-scheduler")


def test_a_shard_whose_ring_label_was_removed_is_taken_contested_and_visible_to_the_next_leader() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.edit_meta("m1-00000001", labels={})
    sim.run(3)
    assert [take.contested for _, take in sim.takes_of("m1-00000001")] == [True]
    sim.machine = Membership(sim.spec)
    sim.run(3)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_contest_whose_lease_loses_its_ring_label_begins_anew_and_is_not_cut_short() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.delete("m1-00000001")
    sim.run(30)
    sim.edit_meta("m1-00000001", labels={})
    sim.machine.observe_one(sim.leases["m1-00000001"], at=sim.at)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(59)
    assert sim.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    sim.run(3)
    assert is_dead(sim.view(), "m1-00000001")


def test_a_stray_lease_that_vanishes_before_the_take_gets_a_tombstone() -> None:
    sim = fleet()
    sim.acting = False
    sim.edit_meta("m1-00000001", labels={})
    sim.machine.observe_one(sim.leases["m1-00000001"], at=sim.at)
    sim.gone("m1-00000001")
    assert [type(intent) for intent in sim.wishes()] == [CreateTombstone]


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a..b", "a" * 64, "ä"])
def test_a_value_that_cannot_be_a_lease_s_name_is_dead_at_once(name: str) -> None:
    sim = fleet()
    sim.machine.unknown_name_seen(name, at=sim.at)
    assert is_dead(sim.view(), name)
    assert sim.wishes() == []


def test_a_live_name_leaves_the_selector_only_when_it_is_dead() -> None:
    sim = fleet(max_lease_duration_s=20)
    sim.delete("m1-00000001")
    sim.run(15)
    assert "m1-00000001" in sim.view().not_dead
    assert sim.view().owner_state("m1-00000001") is not OwnerState.LIVE
    sim.run(10)
    assert "m1-00000001" not in sim.view().not_dead


# ---- the dead -----------------------------------------------------------------------------------------------------


def test_a_dead_lease_is_deleted_only_when_no_object_carries_its_name() -> None:
    sim = fleet()
    sim.labelled.add("m1-00000001")
    sim.release("m1-00000001")
    sim.run(200)
    assert "m1-00000001" in sim.leases
    checks = [at for at, intent in sim.decided if isinstance(intent, NeedOrphanCheck)]
    assert [later - earlier for earlier, later in pairwise(checks)] == [60.0, 60.0]
    sim.labelled.clear()
    sim.run(61)
    assert "m1-00000001" not in sim.leases
    assert sim.state("m1-00000001") is None


def test_a_check_that_began_before_the_death_proves_nothing() -> None:
    sim = fleet()
    begun_at = sim.at
    sim.release("m1-00000001")
    sim.run(30)
    assert sim.state("m1-00000001") is ShardState.DEAD
    sim.machine.orphan_confirmed("m1-00000001", begun_at=begun_at)
    assert not [intent for intent in sim.wishes() if isinstance(intent, DeleteOrphan)]


def test_a_name_whose_dead_lease_was_deleted_gets_a_tombstone_if_an_object_still_arrives_with_it() -> None:
    sim = fleet()
    sim.release("m1-00000001")
    sim.run(130)
    assert sim.view().owner_state("m1-00000001") is OwnerState.UNKNOWN
    sim.machine.unknown_name_seen("m1-00000001", at=sim.at)
    assert sim.wishes() == [CreateTombstone("m1-00000001", "m1-00000001", 60.0)]
