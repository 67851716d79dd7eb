"""Names that objects carry and no shard ever had: anybody can write them, so care for them is bounded."""

from __future__ import annotations

import math
from typing import Any

from sharder.membership.actions import CreateTombstone
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.unknown_names import MAX_TOMBSTONES, MAX_UNKNOWN_NAMES
from sharder.membership.view import OwnerState
from tests.sharder.pure.lease_simulation import LeaseSimulation


def ring(*, duration_s: int = 15, **spec: Any) -> LeaseSimulation:
    """Two members, settled and well."""
    sim = LeaseSimulation(**spec)
    for name in ("a-00000001", "b-00000001"):
        sim.join(name, member=name[0], duration_s=duration_s)
    sim.read()
    sim.run(20)
    return sim


def report(sim: LeaseSimulation, count: int, *, first: int = 0) -> None:
    """Objects that carry *count* names are found."""
    for number in range(first, first + count):
        sim.machine.unknown_name_seen(f"forged-{number}", at=sim.at)


def undead(sim: LeaseSimulation) -> int:
    return sum(
        1
        for shard in sim.view().shards.values()
        if not shard.had_lease and shard.state is not ShardState.DEAD
    )


def test_sixteen_thousand_forged_names_have_a_hundred_tombstones_at_most() -> None:
    sim = ring()
    report(sim, 16_000)
    assert sum(isinstance(intent, CreateTombstone) for intent in sim.decide()) == MAX_UNKNOWN_NAMES
    assert len(sim.view().not_dead) == MAX_UNKNOWN_NAMES + 2
    assert sim.machine.deferred == 1000


def test_a_name_that_waited_is_cared_for_once_others_are_dead() -> None:
    sim = ring(max_lease_duration_s=20)
    report(sim, MAX_UNKNOWN_NAMES + 1)
    sim.run(10)
    report(sim, 1, first=MAX_UNKNOWN_NAMES)
    assert sim.view().owner_state(f"forged-{MAX_UNKNOWN_NAMES}") is OwnerState.UNKNOWN
    sim.run(15)
    report(sim, 1, first=MAX_UNKNOWN_NAMES)
    sim.run(0.5)
    assert sim.state(f"forged-{MAX_UNKNOWN_NAMES}") is ShardState.CONTESTED
    assert sim.machine.deferred == 0


def test_names_that_stay_dead_because_objects_keep_them_are_bounded_too() -> None:
    sim = ring(max_lease_duration_s=2, duration_s=1)
    for _ in range(15):
        report(sim, 2 * MAX_TOMBSTONES)
        sim.labelled.update(sim.view().shards)
        sim.run(3)
    assert sum(1 for shard in sim.view().shards.values() if not shard.had_lease) == MAX_TOMBSTONES


def test_a_name_that_waits_is_not_counted_for_longer_than_a_minute() -> None:
    sim = ring()
    report(sim, MAX_UNKNOWN_NAMES + 5)
    assert sim.machine.deferred == 5
    sim.run(61)
    assert sim.machine.deferred == 0


def test_a_shard_s_lost_lease_does_not_wait_behind_forged_names() -> None:
    sim = ring()
    report(sim, 16_000)
    sim.delete("a-00000001")
    sim.read()
    assert "a-00000001" in {i.name for i in sim.decide() if isinstance(i, CreateTombstone)}


def test_the_selector_leaves_out_only_names_that_a_shard_had_a_lease_of() -> None:
    sim = ring()
    report(sim, 3)
    sim.run(1)
    assert sim.view().owner_state("forged-0") is OwnerState.CONTESTED
    assert sim.view().selector_names == {"a-00000001", "b-00000001"}
    sim.delete("a-00000001")
    sim.run(1)
    assert sim.state("a-00000001") is ShardState.CONTESTED
    assert "a-00000001" in sim.view().selector_names


def test_a_new_leader_knows_a_tombstone_from_a_taken_shard() -> None:
    sim = ring()
    report(sim, 1)
    sim.machine.force("a-00000001")
    sim.run(1)
    sim.machine = Membership(sim.spec)
    sim.read()
    assert sim.state("forged-0") is sim.state("a-00000001") is ShardState.CONTESTED
    assert sim.view().selector_names == {"a-00000001", "b-00000001"}
    assert undead(sim) == 1


def test_a_shard_that_was_only_not_seen_yet_comes_into_the_selector_with_its_lease() -> None:
    sim = ring()
    sim.machine.unknown_name_seen("c-00000001", at=sim.at)
    sim.join("c-00000001", member="c")
    sim.read()
    assert "c-00000001" in sim.view().selector_names


def test_names_that_no_shard_had_change_no_version_of_the_ring() -> None:
    """A pass begins anew with each version: names that come and go would keep it from ever ending."""
    sim = ring(max_lease_duration_s=2, duration_s=1)
    before = sim.view().ring_version
    for number in range(5):
        report(sim, 20, first=20 * number)
        sim.labelled.update(sim.view().shards)
        sim.run(3)
        assert sim.view().owner_state(f"forged-{20 * number}") is OwnerState.DEAD
    assert sim.view().ring_version == before


NAME = "forged-0"
"""The first name that `report` reports."""


def given_up(**spec: Any) -> LeaseSimulation:
    """A ring that is being deleted, its Leases watched without a gap from now on."""
    sim = ring(**spec)
    sim.machine.configure(sim.spec, releasing_at=sim.at)
    sim.machine.note_watch(since=sim.at)
    return sim


def test_a_name_without_a_lease_is_dead_once_a_ring_that_goes_has_seen_every_life() -> None:
    sim = given_up(max_lease_duration_s=20)
    report(sim, 1)
    sim.run(19)
    assert sim.view().owner_state("never-reported") is OwnerState.UNKNOWN
    before = sim.view().ring_version
    sim.run(1.5)
    assert sim.view().owner_state("never-reported") is OwnerState.DEAD
    assert sim.view().ring_version > before, "every object is looked at again"
    assert sim.view().owner_state("a-00000001") is OwnerState.LIVE


def test_a_name_without_a_lease_waits_from_the_deletion_however_long_the_leases_were_watched() -> None:
    """A second sharder that does not know of the deletion yet would give the object to another shard."""
    sim = ring(max_lease_duration_s=20)
    sim.machine.note_watch(since=sim.at)
    sim.run(3600)
    for _ in range(19):
        sim.machine.configure(sim.spec, releasing_at=sim.at)
        sim.run(1)
    assert sim.view().owner_state(NAME) is OwnerState.UNKNOWN
    sim.run(1.5)
    assert sim.view().owner_state(NAME) is OwnerState.DEAD


def test_a_name_without_a_lease_stays_unknown_while_its_ring_stays() -> None:
    sim = ring(max_lease_duration_s=20)
    sim.machine.note_watch(since=sim.at)
    sim.run(25)
    assert sim.view().owner_state(NAME) is OwnerState.UNKNOWN


def test_lives_may_have_been_missed_when_the_watch_lists_anew() -> None:
    sim = given_up(max_lease_duration_s=20)
    sim.run(15)
    sim.machine.note_watch(since=math.inf)
    sim.run(10)
    assert sim.view().owner_state(NAME) is OwnerState.UNKNOWN
    sim.machine.note_watch(since=sim.at)
    sim.run(15)
    assert sim.view().owner_state(NAME) is OwnerState.UNKNOWN
    sim.run(6)
    assert sim.view().owner_state(NAME) is OwnerState.DEAD


def test_a_lease_deleted_by_hand_is_contested_although_its_ring_goes() -> None:
    sim = given_up(max_lease_duration_s=20)
    sim.run(19)
    sim.delete("a-00000001")
    sim.read()
    sim.run(2)
    assert sim.view().owner_state("a-00000001") is OwnerState.CONTESTED
    assert sim.view().owner_state(NAME) is OwnerState.DEAD


def test_a_tombstone_that_is_refused_does_not_keep_a_ring_that_goes() -> None:
    sim = given_up(max_lease_duration_s=20)
    sim.acting = False
    report(sim, 3)
    sim.machine.tombstone_refused(NAME, why="forbidden")
    sim.run(21)
    assert sim.view().may_be_worked == {"a-00000001", "b-00000001"}
    assert not sim.view().problems
    assert not sim.decide()


def test_a_name_whose_tombstone_is_under_way_waits_for_it_although_its_ring_goes() -> None:
    sim = given_up(max_lease_duration_s=20)
    sim.run(19)
    sim.acting = False
    report(sim, 2)
    assert sim.machine.begin_tombstone(NAME)
    sim.run(5)
    assert sim.state(NAME) is ShardState.MISSING
    assert sim.view().owner_state("forged-1") is OwnerState.DEAD
    assert not sim.machine.begin_tombstone("forged-1"), "its tombstone is not wanted any more"
    sim.acting = True
    sim.run(1)
    assert sim.state(NAME) is ShardState.CONTESTED


def test_a_tombstone_that_is_refused_after_all_is_not_waited_for() -> None:
    sim = given_up(max_lease_duration_s=20)
    sim.acting = False
    report(sim, 1)
    sim.machine.begin_tombstone(NAME)
    sim.machine.tombstone_refused(NAME, why="forbidden")
    sim.run(21)
    assert sim.view().owner_state(NAME) is OwnerState.DEAD
