"""Sentences of the protocol's section 4 about Leases, in simulations: silence, edited durations, gaps."""

from __future__ import annotations

import msgspec
import pytest

from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from sharder.membership.actions import Take
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState, read_lease
from sharder.membership.view import WaitReason
from tests.sharder.pure.lease_simulation import (
    LeaseSimulation,
    fall_silent,
    fleet,
    is_dead,
    make_spec,
    reason_of_hold,
    waited,
)

# ---- silence ------------------------------------------------------------------------------------------------------


def test_a_dead_process_is_taken_two_durations_after_its_last_seen_renewal() -> None:
    sim = fleet()
    died_at = fall_silent(sim, "m1-00000001")
    assert waited(sim, "m1-00000001", since=died_at) == [(30.0, False)]
    assert sim.state("m1-00000001") is ShardState.DEAD


@pytest.mark.parametrize("end", ["kill", "release"])
def test_the_last_renewal_but_one_counts_and_not_the_release_or_the_take(
    end: str,
) -> None:
    """What changed just before the last renewal may not be answered, nor what changed until a successor's release."""
    name, sim = "m1-00000001", fleet()
    sim.renew(name)
    sim.read()
    heard = int(sim.leases[name].metadata.resource_version)
    sim.renew(name)
    sim.read()
    assert sim.view().shards[name].renewal_before == heard
    sim.kill(name)
    if end == "release":
        sim.release(name)
    sim.run(60)
    assert sim.state(name) is ShardState.DEAD
    assert int(sim.leases[name].metadata.resource_version) > heard
    assert sim.view().shards[name].renewal_before == heard


def test_a_process_that_renews_just_in_time_is_never_taken() -> None:
    sim = fleet()
    for _ in range(10):
        sim.kill("m1-00000001")
        sim.run(29.5)
        sim.renew("m1-00000001")
        sim.read()
    assert not sim.takes_of("m1-00000001")


def test_an_old_renew_time_says_nothing_to_a_sharder_that_just_started() -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(25)
    sim.machine = Membership(sim.spec)
    sim.read()
    assert sim.state("m1-00000001") is ShardState.READY
    assert waited(sim, "m1-00000001", since=sim.at) == [(30.0, False)]


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_an_edit_of_labels_or_annotations_is_no_sign_of_life(what: str) -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(15)
    current: dict[str, str] = getattr(sim.leases["m1-00000001"].metadata, what)
    sim.edit_meta("m1-00000001", **{what: {**current, "touched": "yes"}})
    sim.read()
    assert sim.state("m1-00000001") is ShardState.EXPIRED


@pytest.mark.parametrize("change", [{"renew_time": "x"}, {"lease_transitions": 7}])
def test_renew_time_and_transitions_are_signs_of_life(change: dict[str, object]) -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(15)
    sim.edit("m1-00000001", **change)
    sim.read()
    assert sim.state("m1-00000001") is ShardState.READY


def test_another_lease_under_the_same_name_counts_from_its_own_first_sight() -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(20)
    sim.edit_meta("m1-00000001", uid="another")
    sim.read()
    assert sim.state("m1-00000001") is ShardState.READY


def test_an_older_version_seen_late_changes_nothing() -> None:
    sim = fleet()
    old = sim.leases["m1-00000001"]
    sim.release("m1-00000001")
    sim.read()
    sim.machine.observe_one(old, at=sim.at)
    assert sim.state("m1-00000001") is ShardState.RELEASED


def test_a_late_list_does_not_bring_a_deleted_lease_back() -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(60)
    late = sim.visible()
    version = str(sim.leases["m1-00000001"].metadata.resource_version)
    sim.delete("m1-00000001")
    sim.gone("m1-00000001")
    sim.machine.observe_list(late, resource_version=version, begun_at=sim.at, at=sim.at)
    assert sim.state("m1-00000001") is None


@pytest.mark.parametrize("was_seen", [True, False])
def test_a_tombstone_made_while_a_get_was_under_way_is_not_gone(was_seen: bool) -> None:
    """The GET was sent before the CREATE and answered after it: nothing would show the tombstone again."""
    sim = fleet()
    name = "m1-00000001" if was_seen else "m9-00000001"
    known = sim.machine.version_of(name)
    sim.labelled.add(name)
    if was_seen:
        sim.delete(name)
        sim.gone(name)
    else:
        sim.machine.unknown_name_seen(name, at=sim.at)
    sim.run(1)
    assert sim.state(name) is ShardState.CONTESTED
    sim.gone(name, known=known)
    assert sim.state(name) is ShardState.CONTESTED


def test_a_lease_younger_than_a_late_list_is_not_gone() -> None:
    sim = fleet()
    before, version = sim.visible(), str(sim.leases["m3-00000001"].metadata.resource_version)
    sim.join("m9-00000001", member="m9")
    sim.machine.observe_one(sim.leases["m9-00000001"], at=sim.at)
    sim.machine.observe_list(before, resource_version=version, begun_at=sim.at, at=sim.at)
    assert sim.state("m9-00000001") is ShardState.READY


def test_the_sharder_takes_exactly_the_version_it_judged() -> None:
    sim = fleet()
    sim.acting = False
    sim.kill("m1-00000001")
    sim.run(30)
    sim.renew("m1-00000001")
    sim.act()
    assert [type(intent) for intent in sim.refused] == [Take]
    assert sim.leases["m1-00000001"].spec.holder_identity == "m1-00000001"
    assert sim.state("m1-00000001") is ShardState.READY


def test_leases_of_other_namespaces_do_not_count() -> None:
    sim = fleet(1)
    meta = msgspec.structs.replace(sim.leases["m0-00000001"].metadata, name="x", namespace="elsewhere")
    sim.machine.observe_one(Lease(meta, LeaseSpec("x", 15)), at=sim.at)
    assert sim.state("x") is None


def test_nothing_is_decided_before_the_first_complete_list() -> None:
    sim = LeaseSimulation()
    sim.join("a-00000001")
    sim.machine.observe_one(sim.leases["a-00000001"], at=sim.at)
    sim.machine.unknown_name_seen("b-00000001", at=sim.at)
    assert sim.decide() == []
    assert reason_of_hold(sim) is WaitReason.NOT_SYNCED


# ---- a duration that somebody edits ------------------------------------------------------------------------------


def test_a_shorter_duration_written_by_another_client_does_not_shorten_the_wait() -> None:
    sim = fleet()
    sim.renew("m1-00000001")
    sim.read()
    edited_at = sim.at
    sim.cut("m1-00000001")
    sim.edit("m1-00000001", lease_duration_seconds=1)
    assert waited(sim, "m1-00000001", since=edited_at, seconds=40) == [(30.0, True)]


def test_an_edited_duration_is_reported_and_the_shard_keeps_its_place_until_it_ends() -> None:
    sim = fleet()
    sim.cut("m1-00000001")
    sim.edit("m1-00000001", lease_duration_seconds=20)
    sim.run(3)
    assert sim.view().shard_at("m1") == "m1-00000001"
    assert [problem.field for problem in sim.view().problems] == [
        "leases/m1-00000001.spec.leaseDurationSeconds"
    ]


def test_a_leader_that_never_saw_the_first_duration_knows_it_from_the_lease() -> None:
    sim = fleet()
    sim.cut("m1-00000001")
    sim.edit("m1-00000001", lease_duration_seconds=1)
    sim.machine = Membership(sim.spec)
    sim.read()
    assert waited(sim, "m1-00000001", since=sim.at, seconds=40) == [(30.0, True)]


def test_an_edit_that_was_taken_back_is_not_forgotten() -> None:
    sim = fleet()
    sim.cut("m1-00000001")
    for duration_s in (1, 15):
        sim.edit("m1-00000001", lease_duration_seconds=duration_s)
        sim.read()
    sim.run(40)
    assert [take.contested for _, take in sim.takes_of("m1-00000001")] == [True]


def test_a_duration_that_no_shard_has_does_not_keep_objects_for_ever() -> None:
    sim = fleet(max_lease_duration_s=60)
    sim.kill("m1-00000001")
    sim.edit("m1-00000001", lease_duration_seconds=2**31 - 1)
    sim.run(31 + 61)
    assert is_dead(sim.view(), "m1-00000001")


def test_of_a_shard_that_writes_no_duration_twice_the_longest_seen_counts() -> None:
    sim = fleet(3)
    sim.join("go-shard", protocol="", duration_s=15)
    sim.run(20)
    sim.renew("go-shard")
    sim.read()
    edited_at = sim.at
    sim.cut("go-shard")
    sim.edit("go-shard", lease_duration_seconds=1)
    assert waited(sim, "go-shard", since=edited_at, seconds=40) == [(30.0, True)]


@pytest.mark.parametrize(("renews", "contested"), [(False, True), (True, False)])
def test_the_duration_of_such_a_shard_is_believed_once_it_was_seen_to_renew(
    renews: bool, contested: bool
) -> None:
    sim = fleet(3)
    sim.join("go-shard", protocol="", duration_s=15)
    sim.machine = Membership(sim.spec)
    sim.read()
    if renews:
        sim.renew("go-shard")
        sim.read()
    sim.kill("go-shard")
    sim.run(40)
    assert [take.contested for _, take in sim.takes_of("go-shard")] == [contested]


@pytest.mark.parametrize("written", ["", "0", "-1", "1e9", "٣", "9" * 5000, "3601", "15.0"])
def test_a_duration_that_is_no_number_is_as_if_it_were_not_there(written: str) -> None:
    keys = RingKeys("r")
    meta = Meta(name="x", labels={keys.ring_label: "r"}, annotations={keys.duration: written})
    facts = read_lease(Lease(meta, LeaseSpec("x", 15, None, "t")), keys=keys, max_duration_s=60)
    assert (facts.duration_s, facts.vouched, facts.edited, facts.problems) == (15.0, False, False, ())


# ---- gaps and many at once ----------------------------------------------------------------------------------------


def test_after_an_outage_longer_than_two_durations_no_lease_is_taken() -> None:
    sim = fleet()
    sim.reachable = False
    sim.run(300)
    assert sim.wishes() == []
    sim.reachable = True
    sim.read()
    assert sim.wishes() == []
    sim.run(60)
    assert not [intent for _, intent in sim.decided if isinstance(intent, Take)]
    assert all(sim.state(name) is ShardState.READY for name in sim.leases)


def test_during_an_outage_states_stand_still() -> None:
    sim = fleet()
    sim.reachable = False
    sim.run(300)
    assert {shard.state for shard in sim.view().shards.values()} == {ShardState.READY}


def test_a_shard_that_died_in_an_outage_is_taken_two_durations_after_it() -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.reachable = False
    sim.run(300)
    sim.reachable = True
    back_at = sim.at
    sim.run(60)
    assert sim.takes_of("m1-00000001")[0][0] - back_at == pytest.approx(30, abs=1)


def test_a_suspended_sharder_does_not_count_the_time_it_slept() -> None:
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(14)
    sim.at += 100
    assert sim.wishes() == []
    sim.read()
    assert sim.wishes() == []
    assert sim.state("m1-00000001") is ShardState.READY


def test_a_gap_is_measured_by_each_lease_s_own_duration() -> None:
    sim = LeaseSimulation(max_lease_duration_s=60)
    sim.join("short-1", duration_s=3)
    sim.join("long-1", duration_s=60)
    sim.run(1)
    sim.kill("short-1", "long-1")
    sim.acting = False
    sim.at += 59
    sim.read()
    sim.at += 2
    sim.read()
    assert sim.state("short-1") is ShardState.READY
    assert sim.state("long-1") is ShardState.EXPIRED


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
    sim = fleet(5)
    names = ("m1-00000001", "m2-00000001")
    (died_at,) = {fall_silent(sim, name) for name in names}
    assert [waited(sim, name, since=died_at) for name in names] == [[(45.0, False)]] * 2


def test_exactly_a_third_does_not_wait() -> None:
    sim = fleet(3)
    died_at = fall_silent(sim, "m1-00000001")
    assert waited(sim, "m1-00000001", since=died_at) == [(30.0, False)]


def test_the_wait_ends_when_the_others_come_back() -> None:
    sim = fleet(5)
    names = ("m1-00000001", "m2-00000001")
    for name in names:
        sim.renew(name)
    sim.read()
    died_at = sim.at
    sim.kill(*names)
    sim.run(33)
    sim.renew("m2-00000001")
    sim.alive.add("m2-00000001")
    sim.run(20)
    assert sim.takes_of("m1-00000001")[0][0] - died_at == pytest.approx(33, abs=1)
    assert not sim.takes_of("m2-00000001")


def test_a_member_whose_next_life_renews_is_not_one_of_many() -> None:
    sim = fleet(2)
    died_at = fall_silent(sim, "m1-00000001")
    sim.join("m1-00000002", member="m1")
    assert waited(sim, "m1-00000001", since=died_at) == [(30.0, False)]


def test_deaths_a_window_apart_are_judged_one_by_one() -> None:
    sim = fleet(5)
    died: dict[str, float] = {}
    for name in ("m1-00000001", "m2-00000001"):
        died[name] = fall_silent(sim, name)
        sim.run(12)
    sim.run(60)
    assert [sim.takes_of(name)[0][0] - at for name, at in died.items()] == [30.0, 30.0]
