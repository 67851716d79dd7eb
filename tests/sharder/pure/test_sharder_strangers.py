"""Names that objects carry and no shard ever had: anybody can write them, so care for them is bounded."""

from __future__ import annotations

import math
from typing import Any

from sharder.membership.actions import CreateTombstone
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.unknown_names import MAX_TOMBSTONES, MAX_UNKNOWN_NAMES
from sharder.membership.view import OwnerState
from tests.sharder.pure.story import Story


def ring(**spec: Any) -> Story:
    """Two members, settled and well."""
    story = Story(**spec)
    for name in ("a-00000001", "b-00000001"):
        story.join(name, member=name[0])
    story.read()
    story.run(20)
    return story


def report(story: Story, count: int, *, first: int = 0) -> None:
    """Objects that carry *count* names are found."""
    for number in range(first, first + count):
        story.machine.unknown_name_seen(f"forged-{number}", at=story.at)


def undead(story: Story) -> int:
    return sum(
        1
        for shard in story.view().shards.values()
        if not shard.had_lease and shard.state is not ShardState.DEAD
    )


def test_sixteen_thousand_forged_names_have_a_hundred_tombstones_at_most() -> None:
    story = ring()
    report(story, 16_000)
    assert sum(isinstance(intent, CreateTombstone) for intent in story.decide()) == MAX_UNKNOWN_NAMES
    assert len(story.view().not_dead) == MAX_UNKNOWN_NAMES + 2
    assert story.machine.deferred == 1000


def test_a_name_that_waited_is_cared_for_once_others_are_dead() -> None:
    story = ring(max_lease_duration_s=20)
    report(story, MAX_UNKNOWN_NAMES + 1)
    story.run(10)
    report(story, 1, first=MAX_UNKNOWN_NAMES)
    assert story.view().owner_state(f"forged-{MAX_UNKNOWN_NAMES}") is OwnerState.UNKNOWN
    story.run(15)
    report(story, 1, first=MAX_UNKNOWN_NAMES)
    story.run(0.5)
    assert story.state(f"forged-{MAX_UNKNOWN_NAMES}") is ShardState.CONTESTED
    assert story.machine.deferred == 0


def test_names_that_stay_dead_because_objects_keep_them_are_bounded_too() -> None:
    story = ring(max_lease_duration_s=2)
    for _ in range(15):
        report(story, 2 * MAX_TOMBSTONES)
        story.labelled.update(story.view().shards)
        story.run(3)
    assert sum(1 for shard in story.view().shards.values() if not shard.had_lease) == MAX_TOMBSTONES


def test_a_name_that_waits_is_not_counted_for_longer_than_a_minute() -> None:
    story = ring()
    report(story, MAX_UNKNOWN_NAMES + 5)
    assert story.machine.deferred == 5
    story.run(61)
    assert story.machine.deferred == 0


def test_a_shard_s_lost_lease_does_not_wait_behind_forged_names() -> None:
    story = ring()
    report(story, 16_000)
    story.delete("a-00000001")
    story.read()
    assert "a-00000001" in {i.name for i in story.decide() if isinstance(i, CreateTombstone)}


def test_the_selector_leaves_out_only_names_that_a_shard_had_a_lease_of() -> None:
    story = ring()
    report(story, 3)
    story.run(1)
    assert story.view().owner_state("forged-0") is OwnerState.CONTESTED
    assert story.view().selector_names == {"a-00000001", "b-00000001"}
    story.delete("a-00000001")
    story.run(1)
    assert story.state("a-00000001") is ShardState.CONTESTED
    assert "a-00000001" in story.view().selector_names


def test_a_new_leader_knows_a_tombstone_from_a_taken_shard() -> None:
    story = ring()
    report(story, 1)
    story.machine.force("a-00000001")
    story.run(1)
    story.machine = Membership(story.spec)
    story.read()
    assert story.state("forged-0") is story.state("a-00000001") is ShardState.CONTESTED
    assert story.view().selector_names == {"a-00000001", "b-00000001"}
    assert undead(story) == 1


def test_a_shard_that_was_only_not_seen_yet_comes_into_the_selector_with_its_lease() -> None:
    story = ring()
    story.machine.unknown_name_seen("c-00000001", at=story.at)
    story.join("c-00000001", member="c")
    story.read()
    assert "c-00000001" in story.view().selector_names


def test_names_that_no_shard_had_change_no_version_of_the_ring() -> None:
    """A pass begins anew with each version: names that come and go would keep it from ever ending."""
    story = ring(max_lease_duration_s=2)
    before = story.view().ring_version
    for number in range(5):
        report(story, 20, first=20 * number)
        story.labelled.update(story.view().shards)
        story.run(3)
        assert story.view().owner_state(f"forged-{20 * number}") is OwnerState.DEAD
    assert story.view().ring_version == before


NAME = "forged-0"
"""The first name that `report` reports."""


def given_up(**spec: Any) -> Story:
    """A ring that is being deleted, its Leases watched without a gap from now on."""
    story = ring(**spec)
    story.machine.configure(story.spec, releasing_at=story.at)
    story.machine.note_watch(since=story.at)
    return story


def test_a_name_without_a_lease_is_dead_once_a_ring_that_goes_has_seen_every_life() -> None:
    story = given_up(max_lease_duration_s=20)
    report(story, 1)
    story.run(19)
    assert story.view().owner_state("never-reported") is OwnerState.UNKNOWN
    before = story.view().ring_version
    story.run(1.5)
    assert story.view().owner_state("never-reported") is OwnerState.DEAD
    assert story.view().ring_version > before, "every object is looked at again"
    assert story.view().owner_state("a-00000001") is OwnerState.LIVE


def test_a_name_without_a_lease_waits_from_the_deletion_however_long_the_leases_were_watched() -> None:
    """A second sharder that does not know of the deletion yet would give the object to another shard."""
    story = ring(max_lease_duration_s=20)
    story.machine.note_watch(since=story.at)
    story.run(3600)
    for _ in range(19):
        story.machine.configure(story.spec, releasing_at=story.at)
        story.run(1)
    assert story.view().owner_state(NAME) is OwnerState.UNKNOWN
    story.run(1.5)
    assert story.view().owner_state(NAME) is OwnerState.DEAD


def test_a_name_without_a_lease_stays_unknown_while_its_ring_stays() -> None:
    story = ring(max_lease_duration_s=20)
    story.machine.note_watch(since=story.at)
    story.run(25)
    assert story.view().owner_state(NAME) is OwnerState.UNKNOWN


def test_lives_may_have_been_missed_when_the_watch_lists_anew() -> None:
    story = given_up(max_lease_duration_s=20)
    story.run(15)
    story.machine.note_watch(since=math.inf)
    story.run(10)
    assert story.view().owner_state(NAME) is OwnerState.UNKNOWN
    story.machine.note_watch(since=story.at)
    story.run(15)
    assert story.view().owner_state(NAME) is OwnerState.UNKNOWN
    story.run(6)
    assert story.view().owner_state(NAME) is OwnerState.DEAD


def test_a_lease_deleted_by_hand_is_contested_although_its_ring_goes() -> None:
    story = given_up(max_lease_duration_s=20)
    story.run(19)
    story.delete("a-00000001")
    story.read()
    story.run(2)
    assert story.view().owner_state("a-00000001") is OwnerState.CONTESTED
    assert story.view().owner_state(NAME) is OwnerState.DEAD


def test_a_tombstone_that_is_refused_does_not_keep_a_ring_that_goes() -> None:
    story = given_up(max_lease_duration_s=20)
    story.acting = False
    report(story, 3)
    story.machine.tombstone_refused(NAME, why="forbidden")
    story.run(21)
    assert story.view().may_be_worked == {"a-00000001", "b-00000001"}
    assert not story.view().problems
    assert not story.decide()
