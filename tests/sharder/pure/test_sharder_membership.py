"""Sentences of the protocol's section 4 about Leases, each as a story."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from sharder.membership.actions import ClearContested, CreateTombstone, DeleteOrphan, NeedOrphanCheck, Take
from sharder.membership.flapping import Flapping
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState, read_lease, shows_held
from sharder.membership.view import AssignmentHold, OwnerState, Unplaced, WaitReason
from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.story import NAMESPACE, Story, make_spec

KEYS = RingKeys("r")


def fleet(count: int = 4, *, duration_s: int = 15, **spec: Any) -> Story:
    """*count* members, settled and well."""
    story = Story(**spec)
    for i in range(count):
        story.join(f"m{i}-00000001", member=f"m{i}", duration_s=duration_s)
    story.read()
    story.run(20)
    return story


def fall_silent(story: Story, name: str) -> float:
    """The process of *name* ends just after a renewal; when that was."""
    story.renew(name)
    story.read()
    story.kill(name)
    return story.at


def reason_of_hold(story: Story) -> WaitReason | None:
    hold = story.view().hold
    return hold.reason if hold else None


def waited(story: Story, name: str, *, since: float, seconds: float = 60) -> list[tuple[float, bool]]:
    """How long after *since* the Lease was taken within *seconds*, and whether it was contested then."""
    story.run(seconds)
    return [(at - since, take.contested) for at, take in story.takes_of(name)]


# ---- silence ------------------------------------------------------------------------------------------------------


def test_a_dead_process_is_taken_two_durations_after_its_last_seen_renewal() -> None:
    story = fleet()
    died_at = fall_silent(story, "m1-00000001")
    assert waited(story, "m1-00000001", since=died_at) == [(30.0, False)]
    assert story.state("m1-00000001") is ShardState.DEAD


@pytest.mark.parametrize("end", ["kill", "release"])
def test_a_life_was_last_heard_of_at_its_last_renewal_but_one_and_not_when_it_was_released_or_taken(
    end: str,
) -> None:
    """What changed just before the last renewal may not be answered, nor what changed until a successor's release."""
    name, story = "m1-00000001", fleet()
    story.renew(name)
    story.read()
    heard = int(story.leases[name].metadata.resource_version)
    story.renew(name)
    story.read()
    assert story.view().shards[name].renewal_before == heard
    story.kill(name)
    if end == "release":
        story.release(name)
    story.run(60)
    assert story.state(name) is ShardState.DEAD
    assert int(story.leases[name].metadata.resource_version) > heard
    assert story.view().shards[name].renewal_before == heard


def test_a_process_that_renews_just_in_time_is_never_taken() -> None:
    story = fleet()
    for _ in range(10):
        story.kill("m1-00000001")
        story.run(29.5)
        story.renew("m1-00000001")
        story.read()
    assert not story.takes_of("m1-00000001")


def test_an_old_renew_time_says_nothing_to_a_sharder_that_just_started() -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(25)
    story.machine = Membership(story.spec)
    story.read()
    assert story.state("m1-00000001") is ShardState.READY
    assert waited(story, "m1-00000001", since=story.at) == [(30.0, False)]


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_an_edit_of_labels_or_annotations_is_no_sign_of_life(what: str) -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(15)
    current: dict[str, str] = getattr(story.leases["m1-00000001"].metadata, what)
    story.edit_meta("m1-00000001", **{what: {**current, "touched": "yes"}})
    story.read()
    assert story.state("m1-00000001") is ShardState.EXPIRED


@pytest.mark.parametrize("change", [{"renew_time": "x"}, {"lease_transitions": 7}])
def test_renew_time_and_transitions_are_signs_of_life(change: dict[str, object]) -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(15)
    story.edit("m1-00000001", **change)
    story.read()
    assert story.state("m1-00000001") is ShardState.READY


def test_another_lease_under_the_same_name_counts_from_its_own_first_sight() -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(20)
    story.edit_meta("m1-00000001", uid="another")
    story.read()
    assert story.state("m1-00000001") is ShardState.READY


def test_an_older_version_seen_late_changes_nothing() -> None:
    story = fleet()
    old = story.leases["m1-00000001"]
    story.release("m1-00000001")
    story.read()
    story.machine.observe_one(old, at=story.at)
    assert story.state("m1-00000001") is ShardState.RELEASED


def test_a_late_list_does_not_bring_a_deleted_lease_back() -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(60)
    late = story.visible()
    version = str(story.leases["m1-00000001"].metadata.resource_version)
    story.delete("m1-00000001")
    story.machine.gone("m1-00000001", at=story.at)
    story.machine.observe_list(late, resource_version=version, begun_at=story.at, at=story.at)
    assert story.state("m1-00000001") is None


def test_a_lease_younger_than_a_late_list_is_not_gone() -> None:
    story = fleet()
    before, version = story.visible(), str(story.leases["m3-00000001"].metadata.resource_version)
    story.join("m9-00000001", member="m9")
    story.machine.observe_one(story.leases["m9-00000001"], at=story.at)
    story.machine.observe_list(before, resource_version=version, begun_at=story.at, at=story.at)
    assert story.state("m9-00000001") is ShardState.READY


def test_the_sharder_takes_exactly_the_version_it_judged() -> None:
    story = fleet()
    story.acting = False
    story.kill("m1-00000001")
    story.run(30)
    story.renew("m1-00000001")
    story.act()
    assert [type(intent) for intent in story.refused] == [Take]
    assert story.leases["m1-00000001"].spec.holder_identity == "m1-00000001"
    assert story.state("m1-00000001") is ShardState.READY


def test_leases_of_other_namespaces_do_not_count() -> None:
    story = fleet(1)
    meta = msgspec.structs.replace(story.leases["m0-00000001"].metadata, name="x", namespace="elsewhere")
    story.machine.observe_one(Lease(meta, LeaseSpec("x", 15)), at=story.at)
    assert story.state("x") is None


def test_nothing_is_decided_before_the_first_complete_list() -> None:
    story = Story()
    story.join("a-00000001")
    story.machine.observe_one(story.leases["a-00000001"], at=story.at)
    story.machine.unknown_name_seen("b-00000001", at=story.at)
    assert story.decide() == []
    assert reason_of_hold(story) is WaitReason.NOT_SYNCED


# ---- a duration that somebody edits ------------------------------------------------------------------------------


def test_a_shorter_duration_written_by_somebody_does_not_shorten_the_wait() -> None:
    story = fleet()
    story.renew("m1-00000001")
    story.read()
    edited_at = story.at
    story.cut("m1-00000001")
    story.edit("m1-00000001", lease_duration_seconds=1)
    assert waited(story, "m1-00000001", since=edited_at, seconds=40) == [(30.0, True)]


def test_an_edited_duration_is_told_and_the_shard_keeps_its_place_until_it_ends() -> None:
    story = fleet()
    story.cut("m1-00000001")
    story.edit("m1-00000001", lease_duration_seconds=20)
    story.run(3)
    assert story.view().shard_at("m1") == "m1-00000001"
    assert [problem.field for problem in story.view().problems] == [
        "leases/m1-00000001.spec.leaseDurationSeconds"
    ]


def test_a_leader_that_never_saw_the_first_duration_knows_it_from_the_lease() -> None:
    story = fleet()
    story.cut("m1-00000001")
    story.edit("m1-00000001", lease_duration_seconds=1)
    story.machine = Membership(story.spec)
    story.read()
    assert waited(story, "m1-00000001", since=story.at, seconds=40) == [(30.0, True)]


def test_an_edit_that_was_taken_back_is_not_forgotten() -> None:
    story = fleet()
    story.cut("m1-00000001")
    for duration_s in (1, 15):
        story.edit("m1-00000001", lease_duration_seconds=duration_s)
        story.read()
    story.run(40)
    assert [take.contested for _, take in story.takes_of("m1-00000001")] == [True]


def test_a_duration_that_no_shard_has_does_not_keep_objects_for_ever() -> None:
    story = fleet(max_lease_duration_s=60)
    story.kill("m1-00000001")
    story.edit("m1-00000001", lease_duration_seconds=2**31 - 1)
    story.run(31 + 61)
    assert story.view().dead("m1-00000001")


def test_of_a_shard_that_writes_no_duration_twice_the_longest_seen_counts() -> None:
    story = fleet(3)
    story.join("go-shard", protocol="", duration_s=15)
    story.run(20)
    story.renew("go-shard")
    story.read()
    edited_at = story.at
    story.cut("go-shard")
    story.edit("go-shard", lease_duration_seconds=1)
    assert waited(story, "go-shard", since=edited_at, seconds=40) == [(30.0, True)]


@pytest.mark.parametrize(("renews", "contested"), [(False, True), (True, False)])
def test_the_duration_of_such_a_shard_is_believed_once_it_was_seen_to_renew(
    renews: bool, contested: bool
) -> None:
    story = fleet(3)
    story.join("go-shard", protocol="", duration_s=15)
    story.machine = Membership(story.spec)
    story.read()
    if renews:
        story.renew("go-shard")
        story.read()
    story.kill("go-shard")
    story.run(40)
    assert [take.contested for _, take in story.takes_of("go-shard")] == [contested]


@pytest.mark.parametrize("written", ["", "0", "-1", "1e9", "٣", "9" * 5000, "3601", "15.0"])
def test_a_duration_in_words_that_is_none_is_as_if_it_were_not_there(written: str) -> None:
    meta = Meta(name="x", labels={KEYS.ring_label: "r"}, annotations={KEYS.duration: written})
    facts = read_lease(Lease(meta, LeaseSpec("x", 15, None, "t")), keys=KEYS, max_duration_s=60)
    assert (facts.duration_s, facts.vouched, facts.edited, facts.problems) == (15.0, False, False, ())


# ---- gaps and many at once ----------------------------------------------------------------------------------------


def test_after_an_outage_longer_than_two_durations_nobody_is_taken() -> None:
    story = fleet()
    story.reachable = False
    story.run(300)
    assert story.wishes() == []
    story.reachable = True
    story.read()
    assert story.wishes() == []
    story.run(60)
    assert not [intent for _, intent in story.decided if isinstance(intent, Take)]
    assert all(story.state(name) is ShardState.READY for name in story.leases)


def test_during_an_outage_states_stand_still() -> None:
    story = fleet()
    story.reachable = False
    story.run(300)
    assert {shard.state for shard in story.view().shards.values()} == {ShardState.READY}


def test_a_shard_that_died_in_an_outage_is_taken_two_durations_after_it() -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.reachable = False
    story.run(300)
    story.reachable = True
    back_at = story.at
    story.run(60)
    assert story.takes_of("m1-00000001")[0][0] - back_at == pytest.approx(30, abs=1)


def test_a_suspended_sharder_does_not_count_the_time_it_slept() -> None:
    story = fleet()
    story.kill("m1-00000001")
    story.run(14)
    story.at += 100
    assert story.wishes() == []
    story.read()
    assert story.wishes() == []
    assert story.state("m1-00000001") is ShardState.READY


def test_a_gap_is_measured_by_each_lease_s_own_duration() -> None:
    story = Story(max_lease_duration_s=60)
    story.join("short-1", duration_s=3)
    story.join("long-1", duration_s=60)
    story.run(1)
    story.kill("short-1", "long-1")
    story.acting = False
    story.at += 59
    story.read()
    story.at += 2
    story.read()
    assert story.state("short-1") is ShardState.READY
    assert story.state("long-1") is ShardState.EXPIRED


@pytest.mark.parametrize(("begun_at", "state"), [(124.9, ShardState.READY), (125.0, ShardState.EXPIRED)])
def test_silence_is_counted_from_an_answer_to_the_moment_the_next_read_began(
    begun_at: float, state: ShardState
) -> None:
    leases = fleet(1).visible()
    machine = Membership(make_spec())
    machine.observe_list(leases, resource_version="900", begun_at=109, at=110)
    machine.observe_list(leases, resource_version="900", begun_at=118, at=119)
    machine.observe_list(leases, resource_version="901", begun_at=begun_at, at=150)
    assert machine.view(at=150).shards["m0-00000001"].state is state


def test_more_than_a_third_at_once_waits_one_duration_more() -> None:
    story = fleet(5)
    names = ("m1-00000001", "m2-00000001")
    (died_at,) = {fall_silent(story, name) for name in names}
    assert [waited(story, name, since=died_at) for name in names] == [[(45.0, False)]] * 2


def test_exactly_a_third_does_not_wait() -> None:
    story = fleet(3)
    died_at = fall_silent(story, "m1-00000001")
    assert waited(story, "m1-00000001", since=died_at) == [(30.0, False)]


def test_the_wait_ends_when_the_others_come_back() -> None:
    story = fleet(5)
    names = ("m1-00000001", "m2-00000001")
    for name in names:
        story.renew(name)
    story.read()
    died_at = story.at
    story.kill(*names)
    story.run(33)
    story.renew("m2-00000001")
    story.alive.add("m2-00000001")
    story.run(20)
    assert story.takes_of("m1-00000001")[0][0] - died_at == pytest.approx(33, abs=1)
    assert not story.takes_of("m2-00000001")


def test_a_member_whose_next_life_renews_is_not_one_of_many() -> None:
    story = fleet(2)
    died_at = fall_silent(story, "m1-00000001")
    story.join("m1-00000002", member="m1")
    assert waited(story, "m1-00000001", since=died_at) == [(30.0, False)]


def test_deaths_a_window_apart_are_judged_one_by_one() -> None:
    story = fleet(5)
    died: dict[str, float] = {}
    for name in ("m1-00000001", "m2-00000001"):
        died[name] = fall_silent(story, name)
        story.run(12)
    story.run(60)
    assert [story.takes_of(name)[0][0] - at for name, at in died.items()] == [30.0, 30.0]


# ---- who fills a place --------------------------------------------------------------------------------------------


def test_a_shard_gets_its_place_when_its_caches_are_full_and_not_before() -> None:
    story = fleet()
    story.join("m9-00000001", member="m9", fills=False)
    story.run(60)
    assert "m9" not in story.view().ring_members
    assert story.view().shards["m9-00000001"].unplaced is Unplaced.FILLING
    story.fill("m9-00000001")
    story.run(2.5)
    assert story.view().shard_at("m9") == "m9-00000001"
    assert story.view().shards["m9-00000001"].unplaced is None


def test_a_lease_that_a_backup_tool_restored_gets_no_place() -> None:
    story = fleet()
    restored = msgspec.structs.replace(
        story.leases["m1-00000001"].metadata,
        name="ghost-00000001",
        uid="uid-of-the-copy",
        annotations={**story.leases["m1-00000001"].metadata.annotations, story.keys.member: "ghost"},
    )
    story.write(Lease(restored, LeaseSpec("ghost-00000001", 15, None, "2026-01-01T00:00:00.000000Z")))
    story.run(29)
    assert "ghost" not in story.view().ring_members
    assert story.view().shards["ghost-00000001"].unplaced is Unplaced.UNSEEN
    story.run(3)
    assert story.view().dead("ghost-00000001")


def test_a_sharder_that_starts_gives_every_shard_its_place_at_once_whenever_they_renew() -> None:
    story = Story()
    for i in range(6):
        story.join(f"m{i}-00000001", member=f"m{i}")
        story.run(0.5)
    story.run(20)
    before = story.view().ring
    story.machine = Membership(story.spec)
    rings = []
    for _ in range(40):
        story.run(0.5)
        rings.append(story.view().ring)
    assert set(rings) == {None, before}
    assert rings.index(before) < 6


def test_a_next_life_that_wears_a_held_lease_again_keeps_the_place_while_it_fills_its_caches() -> None:
    story = Story(hold_s=60)
    story.join("a-00000001", member="a", hold=True)
    story.run(5)
    story.release("a-00000001")
    story.run(5)
    annotations = dict(story.leases["a-00000001"].metadata.annotations)
    del annotations[story.keys.synced]
    story.edit_meta("a-00000001", annotations=annotations)
    story.edit("a-00000001", holder_identity="a-00000001", lease_transitions=1)
    story.alive.add("a-00000001")
    story.run(30)
    assert story.view().shard_at("a") == "a-00000001"


def test_members_that_never_fill_their_caches_do_not_count_for_min_members() -> None:
    story = Story(min_members=2)
    story.join("a-00000001", member="a")
    story.join("b-00000001", member="b", fills=False)
    story.run(30)
    assert story.view().hold == AssignmentHold(WaitReason.MIN_MEMBERS)


def test_each_short_life_doubles_what_the_next_one_waits_and_five_minutes_are_the_most() -> None:
    flapping, waits = Flapping(), []
    for number in range(12):
        waits.append(flapping.wait_s("a", settle_s=2))
        flapping.note_end("a", lived_s=3, duration_s=15, at=number)
    assert waits == [0, 0, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert flapping.wait_s("b", settle_s=2) == 0


def test_a_life_of_ordinary_length_or_ten_minutes_forget_short_ones() -> None:
    flapping = Flapping()
    for at in (1.0, 2.0, 3.0):
        flapping.note_end("a", lived_s=59.9, duration_s=15, at=at)
        flapping.note_end("b", lived_s=0, duration_s=15, at=at)
    flapping.note_end("a", lived_s=60, duration_s=15, at=4)
    assert flapping.wait_s("a", settle_s=2) == 0
    flapping.forget(now=602.9)
    assert flapping.wait_s("b", settle_s=2) > 0
    flapping.forget(now=603.1)
    assert flapping.wait_s("b", settle_s=2) == 0


def test_a_member_that_flaps_is_told_until_it_gets_its_place() -> None:
    story = fleet()
    for number in range(2, 6):
        story.join(f"m9-{number:08x}", member="m9")
        story.run(2)
        story.release(f"m9-{number:08x}")
        story.run(1)
    story.join("m9-0000000f", member="m9")
    story.run(3)
    assert story.view().shards["m9-0000000f"].unplaced is Unplaced.FLAPPING
    assert "m9" not in story.view().ring_members
    deadline = story.machine.turn(at=story.at, acting=True)[2]
    assert deadline is not None
    story.run(30)
    assert story.view().shard_at("m9") == "m9-0000000f"


# ---- take before move, contested, tombstones ----------------------------------------------------------------------


def test_a_lease_deleted_by_hand_is_contested_for_the_longest_duration_and_only_then_dead() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    deleted_at = story.at
    story.run(59)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    assert story.keys.contested in story.leases["m1-00000001"].metadata.annotations
    assert story.leases["m1-00000001"].metadata.annotations[story.keys.member] == "m1"
    story.run(2)
    assert story.view().dead("m1-00000001")
    (cleared_at,) = (at for at, intent in story.decided if isinstance(intent, ClearContested))
    assert cleared_at - deleted_at >= 60


def test_a_name_that_has_no_lease_gets_a_tombstone_and_its_objects_stay() -> None:
    story = fleet(max_lease_duration_s=60)
    story.machine.unknown_name_seen("m9-00000001", at=story.at)
    assert story.view().owner_state("m9-00000001") is OwnerState.CONTESTED
    story.run(59)
    assert story.view().owner_state("m9-00000001") is OwnerState.CONTESTED
    assert story.leases["m9-00000001"].spec.holder_identity == "sharder:sharder-1"
    story.run(3)
    assert story.view().dead("m9-00000001")


def test_a_policy_that_refuses_a_tombstone_kills_no_name_and_is_told_until_it_gives_way() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    story.read()
    story.machine.tombstone_refused("m1-00000001", why="policy says no")
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    (problem,) = story.view().problems
    assert "policy says no" in problem.problem
    assert story.wishes() == [CreateTombstone("m1-00000001", "m1", 15.0)]
    story.act()
    assert story.view().problems == ()
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_sharder_that_starts_during_the_wait_sees_it_through_itself() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    story.run(55)
    story.machine = Membership(story.spec)
    story.run(59)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    story.run(2)
    assert story.view().dead("m1-00000001")


def test_a_standby_that_watched_need_not_begin_the_wait_again() -> None:
    story = fleet(max_lease_duration_s=60)
    standby = Membership(story.spec)
    story.standbys.append(standby)
    story.run(1)
    story.delete("m1-00000001")
    story.run(55)
    story.machine, story.standbys = standby, []
    story.run(6)
    assert story.view().dead("m1-00000001")


def test_a_lease_with_a_longer_duration_than_the_ring_allows_now_is_waited_for_in_full() -> None:
    story = fleet(duration_s=50, max_lease_duration_s=60)
    story.machine.configure(make_spec(max_lease_duration_s=10))
    story.delete("m1-00000001")
    deleted_at = story.at
    story.run(70)
    (cleared_at,) = (at for at, intent in story.decided if isinstance(intent, ClearContested))
    assert cleared_at - deleted_at >= 50


def test_a_contest_that_changes_hands_begins_anew() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    story.run(40)
    story.edit("m1-00000001", holder_identity="sharder:other", lease_transitions=9)
    story.run(40)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    story.run(25)
    assert story.view().dead("m1-00000001")


def test_two_sharders_that_bury_the_same_name_wait_for_the_same_contest() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    story.read()
    late = Membership(story.spec)
    late.observe_list(story.visible(), resource_version="900", begun_at=story.at, at=story.at)
    late.unknown_name_seen("m1-00000001", at=story.at)
    story.act()
    late.observe_one(story.leases["m1-00000001"], at=story.at)
    assert late.view(at=story.at).owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_forced_owner_is_contested_before_it_is_dead() -> None:
    story = fleet(max_lease_duration_s=20)
    story.machine.force("m1-00000001")
    story.run(0.5)
    assert [take.contested for _, take in story.takes_of("m1-00000001")] == [True]
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    story.run(21)
    assert story.view().dead("m1-00000001")


def test_forcing_a_name_that_released_needs_no_contest() -> None:
    story = fleet()
    story.release("m1-00000001")
    story.machine.force("m1-00000001")
    story.run(1)
    assert [take.contested for _, take in story.takes_of("m1-00000001")] == [False]


def test_an_unrelated_lease_is_never_touched() -> None:
    story = fleet()
    story.write(Lease(Meta(name="kube-scheduler", namespace=NAMESPACE), LeaseSpec("node-1_abc", 15)))
    untouched = story.leases["kube-scheduler"]
    story.machine.unknown_name_seen("kube-scheduler", at=story.at)
    story.run(200)
    assert story.leases["kube-scheduler"] == untouched
    assert story.view().dead("kube-scheduler")


def test_a_shard_whose_ring_label_was_removed_is_taken_contested_and_visible_to_the_next_leader() -> None:
    story = fleet(max_lease_duration_s=60)
    story.edit_meta("m1-00000001", labels={})
    story.run(3)
    assert [take.contested for _, take in story.takes_of("m1-00000001")] == [True]
    story.machine = Membership(story.spec)
    story.run(3)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED


def test_a_contest_whose_lease_loses_its_ring_label_begins_anew_and_is_not_cut_short() -> None:
    story = fleet(max_lease_duration_s=60)
    story.delete("m1-00000001")
    story.run(30)
    story.edit_meta("m1-00000001", labels={})
    story.machine.observe_one(story.leases["m1-00000001"], at=story.at)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    story.run(59)
    assert story.view().owner_state("m1-00000001") is OwnerState.CONTESTED
    story.run(3)
    assert story.view().dead("m1-00000001")


def test_a_stray_lease_that_vanishes_before_the_take_gets_a_tombstone() -> None:
    story = fleet()
    story.acting = False
    story.edit_meta("m1-00000001", labels={})
    story.machine.observe_one(story.leases["m1-00000001"], at=story.at)
    story.machine.gone("m1-00000001", at=story.at)
    assert [type(intent) for intent in story.wishes()] == [CreateTombstone]


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a..b", "a" * 64, "ä"])
def test_a_value_that_cannot_be_a_lease_s_name_is_dead_at_once(name: str) -> None:
    story = fleet()
    story.machine.unknown_name_seen(name, at=story.at)
    assert story.view().dead(name)
    assert story.wishes() == []


def test_a_live_name_leaves_the_selector_only_when_it_is_dead() -> None:
    story = fleet(max_lease_duration_s=20)
    story.delete("m1-00000001")
    story.run(15)
    assert "m1-00000001" in story.view().not_dead
    assert story.view().owner_state("m1-00000001") is not OwnerState.LIVE
    story.run(10)
    assert "m1-00000001" not in story.view().not_dead


# ---- released, holds ----------------------------------------------------------------------------------------------


def test_a_stable_shard_that_restarts_within_its_hold_leaves_the_ring_as_it_was() -> None:
    story = Story(hold_s=60)
    for i in range(3):
        story.join(f"web-{i}-00000001", member=f"web-{i}", hold=True)
    story.run(5)
    version = story.view().ring_version
    for i in range(3):
        name = f"web-{i}-00000001"
        story.release(name)
        story.run(20)
        story.edit(name, holder_identity=name, lease_transitions=1, renew_time="again")
        story.alive.add(name)
        story.run(10)
    assert story.view().ring_version == version
    assert not [intent for _, intent in story.decided if isinstance(intent, Take)]


def test_a_hold_that_passes_ends_in_a_take() -> None:
    story = Story(hold_s=60)
    story.join("web-0-00000001", member="web-0", hold=True)
    story.run(5)
    story.release("web-0-00000001")
    released_at = story.at
    story.run(80)
    assert story.takes_of("web-0-00000001")[0][0] - released_at == pytest.approx(60, abs=0.5)


def test_a_released_place_may_receive_nothing() -> None:
    story = Story(hold_s=60)
    story.join("web-0-00000001", member="web-0", hold=True)
    story.run(5)
    story.release("web-0-00000001")
    story.read()
    view = story.view()
    assert view.shard_at("web-0") == "web-0-00000001"
    assert (view.holds("web-0-00000001"), view.may_receive("web-0-00000001")) == (False, False)


# ---- the dead -----------------------------------------------------------------------------------------------------


def test_a_dead_lease_is_deleted_only_when_no_object_carries_its_name() -> None:
    story = fleet()
    story.labelled.add("m1-00000001")
    story.release("m1-00000001")
    story.run(200)
    assert "m1-00000001" in story.leases
    checks = [at for at, intent in story.decided if isinstance(intent, NeedOrphanCheck)]
    assert [later - earlier for earlier, later in pairwise(checks)] == [60.0, 60.0]
    story.labelled.clear()
    story.run(61)
    assert "m1-00000001" not in story.leases
    assert story.state("m1-00000001") is None


def test_a_check_that_began_before_the_death_proves_nothing() -> None:
    story = fleet()
    begun_at = story.at
    story.release("m1-00000001")
    story.run(30)
    assert story.state("m1-00000001") is ShardState.DEAD
    story.machine.orphan_confirmed("m1-00000001", begun_at=begun_at)
    assert not [intent for intent in story.wishes() if isinstance(intent, DeleteOrphan)]


def test_a_name_whose_dead_lease_was_deleted_gets_a_tombstone_if_an_object_still_arrives_with_it() -> None:
    story = fleet()
    story.release("m1-00000001")
    story.run(130)
    assert story.view().owner_state("m1-00000001") is OwnerState.UNKNOWN
    story.machine.unknown_name_seen("m1-00000001", at=story.at)
    assert story.wishes() == [CreateTombstone("m1-00000001", "m1-00000001", 60.0)]


# ---- what a Lease may say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (LeaseSpec("x", None, None, "t"), "leaseDurationSeconds"),
        (LeaseSpec("x", 0, None, "t"), "leaseDurationSeconds"),
        (LeaseSpec("x", -5, None, "t"), "leaseDurationSeconds"),
        (LeaseSpec("x", 61, None, "t"), "leaseDurationSeconds"),
        (LeaseSpec("x", 15, None, None), "renewTime"),
    ],
)
def test_bad_content_of_a_lease_is_reported_and_never_raised(spec: LeaseSpec, field: str) -> None:
    lease = Lease(Meta(name="x", labels={KEYS.ring_label: "r"}), spec)
    (problem,) = read_lease(lease, keys=KEYS, max_duration_s=60).problems
    assert field in problem.field
    assert problem.remedy


def test_an_empty_lease_is_released_and_reported() -> None:
    story = fleet()
    story.write(Lease(Meta(name="odd", namespace=NAMESPACE, labels={KEYS.ring_label: "r"})))
    story.acting = False
    story.run(1)
    assert story.state("odd") is ShardState.RELEASED
    assert [problem.field for problem in story.view().problems] == ["leases/odd.spec.leaseDurationSeconds"]


@pytest.mark.parametrize("duration_s", [None, -1, 61])
def test_a_shard_whose_duration_does_not_fit_gets_no_place_but_is_watched(duration_s: int | None) -> None:
    story = fleet(4, max_lease_duration_s=60)
    story.join("odd-00000001", member="odd", duration_s=duration_s)
    story.run(10)
    assert "odd" not in story.view().ring_members
    assert story.view().owner_state("odd-00000001") is OwnerState.LIVE
    story.renew("odd-00000001")
    story.read()
    died_at = story.at
    story.kill("odd-00000001")
    story.run(130)
    waited = 2 * max(duration_s or 60, 60)
    assert story.takes_of("odd-00000001")[0][0] - died_at == pytest.approx(waited, abs=0.5)


def test_a_shard_of_an_unknown_protocol_gets_no_place() -> None:
    story = fleet(1)
    story.join("new-00000001", member="new", protocol="v9")
    story.run(5)
    assert "new" not in story.view().ring_members
    assert "v9" in str(story.view().problems[0])


def test_a_shard_without_protocol_annotation_is_a_member_that_does_not_hand_over() -> None:
    story = fleet(1)
    story.join("go-shard", protocol="")
    story.run(4)
    assert story.view().shards["go-shard"].unplaced is Unplaced.UNSEEN
    story.run(4)
    view = story.view()
    assert view.shard_at("go-shard") == "go-shard"
    assert view.shards["go-shard"].unplaced is None
    assert not view.shards["go-shard"].hands_over


@pytest.mark.parametrize("member", ["a\nb", "x" * 254])
def test_a_member_name_that_cannot_be_one_makes_the_shard_its_own_member(member: str) -> None:
    story = fleet(1)
    story.join("odd-00000001", member=member)
    story.run(5)
    assert story.view().shard_at("odd-00000001") == "odd-00000001"
    assert story.view().problems


def test_a_lease_whose_name_cannot_be_a_label_is_left_alone() -> None:
    story = fleet(1)
    story.join("x" * 64)
    story.run(5)
    assert "x" * 64 not in story.view().shards
    assert [problem.field for problem in story.view().problems] == [f"leases/{'x' * 64}.metadata.name"]
    story.kill("x" * 64)
    story.delete("x" * 64)
    story.read()
    assert story.view().problems == ()


def test_only_a_held_lease_of_this_ring_is_evidence() -> None:
    def lease(holder: str, ring: str) -> Lease:
        return Lease(Meta(name="x", labels={KEYS.ring_label: ring}), LeaseSpec(holder, 15))

    assert shows_held(lease("x", "r"), keys=KEYS)
    assert not shows_held(lease("", "r"), keys=KEYS)
    assert not shows_held(lease("sharder:a", "r"), keys=KEYS)
    assert not shows_held(lease("x", "another"), keys=KEYS)


# ---- labels for people, waking up ---------------------------------------------------------------------------------


def test_the_state_label_follows_the_state_and_is_no_sign_of_life() -> None:
    story = fleet(4)
    story.kill("m1-00000001")
    label = story.keys.state
    seen = []
    for _ in range(40):
        story.run(1)
        seen.append(story.leases["m1-00000001"].metadata.labels[label])
    assert list(dict.fromkeys(seen)) == ["ready", "expired", "dead"]
    assert len(story.takes_of("m1-00000001")) == 1


def test_at_rest_there_is_nothing_to_write() -> None:
    story = fleet()
    story.run(5)
    assert story.decide() == []


def test_the_next_deadline_is_when_something_changes_by_itself() -> None:
    story = fleet(4)
    story.acting = False
    for name in tuple(story.alive):
        story.renew(name)
    story.read()
    start = story.at
    assert story.machine.turn(at=start, acting=True)[2] == start + 15
    story.join("new-00000001", member="new")
    story.read()
    assert story.machine.turn(at=start, acting=True)[2] == start + story.spec.settle_s


def test_deadlines_lie_ahead_whatever_happened() -> None:
    story = fleet(4, hold_s=5)
    story.kill("m1-00000001")
    story.delete("m2-00000001")
    story.release("m3-00000001")
    for _ in range(300):
        story.run(0.5)
        deadline = story.machine.turn(at=story.at, acting=True)[2]
        assert deadline is None or deadline > story.at


def test_the_view_keeps_its_version_while_nothing_changes() -> None:
    story = fleet()
    version = story.view().version
    story.run(10)
    assert story.view().version == version


def test_a_state_that_moves_no_object_leaves_the_ring_version_alone() -> None:
    story = fleet()
    ring_version, version = story.view().ring_version, story.view().version
    story.kill("m1-00000001")
    story.run(16)
    assert story.state("m1-00000001") is ShardState.EXPIRED
    assert story.view().ring_version == ring_version
    assert story.view().version > version
    story.run(20)
    assert story.view().ring_version > ring_version


def test_objects_wait_below_min_members_and_through_the_start_delay() -> None:
    story = Story(min_members=2, start_delay_s=10)
    story.join("a-00000001")
    story.run(5)
    assert reason_of_hold(story) is WaitReason.START_DELAY
    story.run(10)
    assert reason_of_hold(story) is WaitReason.MIN_MEMBERS
    story.join("b-00000001")
    story.run(3)
    assert story.view().hold is None


def test_the_start_delay_begins_anew_after_an_outage() -> None:
    story = fleet(start_delay_s=10)
    assert story.view().hold is None
    story.reachable = False
    story.run(100)
    story.reachable = True
    story.run(9)
    assert reason_of_hold(story) is WaitReason.START_DELAY
    story.run(3)
    assert story.view().hold is None


def test_reads_are_wanted_several_times_within_the_shortest_duration() -> None:
    assert fleet(duration_s=3).machine.read_interval_s == 0.5
    assert fleet(duration_s=60).machine.read_interval_s == 5.0


def test_a_cordoned_member_keeps_its_objects_live_and_loses_its_place() -> None:
    story = fleet()
    story.machine.configure(make_spec(members={"m1": MemberSpec(cordoned=True)}))
    story.run(1)
    assert "m1" in story.view().ring_members
    story.run(2)
    assert "m1" not in story.view().ring_members
    assert story.view().owner_state("m1-00000001") is OwnerState.LIVE


def test_a_name_may_be_worked_under_until_it_was_released_or_is_dead() -> None:
    story = fleet(2, max_lease_duration_s=20)
    story.acting = False
    assert story.view().may_be_worked == {"m0-00000001", "m1-00000001"}
    story.release("m0-00000001")
    story.delete("m1-00000001")
    story.read()
    assert story.view().may_be_worked == {"m1-00000001"}, "its process may not have noticed"
    story.acting = True
    story.run(19)
    assert story.state("m1-00000001") is ShardState.CONTESTED
    assert story.view().may_be_worked == {"m1-00000001"}
    story.run(2)
    assert story.view().may_be_worked == frozenset()
