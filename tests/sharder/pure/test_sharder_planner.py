"""What is written to one object: every rule of the protocol's sections 6.3 to 6.6 and 7 that is a decision."""

from __future__ import annotations

import dataclasses

import pytest

from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, View, WaitReason
from sharder.planning.decisions import (
    NOTHING,
    Assign,
    Decision,
    Drain,
    NeedController,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
    Wait,
)
from sharder.planning.keys import Outsider
from sharder.planning.planner import CHILDREN_FIRST_S, ControllerSeen, Subject
from tests.sharder.pure.views import child_of, make_meta, make_view, name_for, planned, website

TWO = make_view(
    {
        "a-1": ShardState.READY,
        "b-1": ShardState.READY,
        "c-dead": ShardState.DEAD,
        "c-contested": ShardState.CONTESTED,
        "c-missing": ShardState.MISSING,
        "c-expired": ShardState.EXPIRED,
        "c-released": ShardState.RELEASED,
    },
    {"a": "a-1", "b": "b-1"},
)
OF_A, OF_B = name_for(TWO, "a"), name_for(TWO, "b")
BELOW = AssignmentHold(WaitReason.MIN_MEMBERS)


def changed(view: View, **states: ShardState) -> View:
    """*view* with the states of a-1 and b-1 as given (by member)."""
    shards = {name: shard.state for name, shard in view.shards.items()}
    shards |= {f"{member}-1": state for member, state in states.items()}
    return make_view(shards, {member: place.shard for member, place in view.places.items()})


# ---- without an owner ---------------------------------------------------------------------------------------------


def test_an_object_without_owner_goes_to_the_shard_at_its_place() -> None:
    assert planned(website(OF_A), TWO) == Assign("a-1")
    assert planned(website(OF_B), TWO) == Assign("b-1")


def test_an_object_of_a_dead_owner_goes_straight_to_the_shard_at_its_place() -> None:
    assert planned(website(OF_A, shard="c-dead"), TWO) == Assign("a-1", was="c-dead")


def test_a_dead_owner_s_unanswered_drain_does_not_matter() -> None:
    assert planned(website(OF_A, shard="c-dead", drain="b-1"), TWO) == Assign("a-1", was="c-dead")


@pytest.mark.parametrize("value", ["", "No_Name", "x" * 64])
def test_a_label_value_that_cannot_be_a_name_is_a_dead_owner(value: str) -> None:
    assert planned(website(OF_A, shard=value), TWO) == Assign("a-1", was=value)


def test_the_name_of_an_unrelated_lease_is_a_dead_owner() -> None:
    view = make_view({"a-1": ShardState.READY}, {"a": "a-1"}, foreign=frozenset({"kube-scheduler"}))
    assert planned(website("x", shard="kube-scheduler"), view) == Assign("a-1", was="kube-scheduler")


def test_an_owner_that_is_silent_for_long_but_not_taken_keeps_its_objects() -> None:
    view = changed(TWO, b=ShardState.UNCERTAIN)
    assert planned(website(OF_A, shard="b-1"), view) == Wait(WaitReason.OWNER_SILENT)
    assert planned(website(OF_B, shard="b-1"), view) == NOTHING


@pytest.mark.parametrize("owner", ["c-contested", "c-missing"])
@pytest.mark.parametrize("drain", [None, "", "b-1"])
def test_objects_of_a_contested_owner_stay_where_they_are(owner: str, drain: str | None) -> None:
    for releasing in (False, True):
        decision = planned(website(OF_A, shard=owner, drain=drain), TWO, releasing=releasing)
        assert decision == Wait(WaitReason.OWNER_CONTESTED)


def test_an_unknown_owner_is_reported_and_its_object_waits() -> None:
    assert planned(website(OF_A, shard="stranger-1"), TWO) == ReportUnknown("stranger-1")


def test_before_the_leases_were_read_no_name_is_unknown() -> None:
    view = make_view({}, {}, hold=AssignmentHold(WaitReason.NOT_SYNCED))
    assert planned(website("x", shard="stranger-1"), view) == Wait(WaitReason.NOT_SYNCED)
    assert planned(website("x"), view) == Wait(WaitReason.NOT_SYNCED)


@pytest.mark.parametrize("shard", [None, "c-dead"])
def test_objects_without_a_live_owner_wait_while_the_ring_says_so(shard: str | None) -> None:
    view = make_view({"a-1": ShardState.READY, "c-dead": ShardState.DEAD}, {"a": "a-1"}, hold=BELOW)
    assert planned(website("x", shard=shard), view) == Wait(WaitReason.MIN_MEMBERS)


def test_a_new_object_is_assigned_although_the_ring_is_paused() -> None:
    assert planned(website(OF_A), TWO, paused=True) == Assign("a-1")
    assert planned(website(OF_A, shard="c-dead"), TWO, paused=True) == Assign("a-1", was="c-dead")


@pytest.mark.parametrize(
    ("shard", "drain", "decision"),
    [
        ("a-1", None, ReleaseDrain("a-1")),
        ("a-1", "b-1", ReleaseDrain("a-1")),
        ("a-1", "", NOTHING),
        ("dead-1", None, Strip()),
        (None, None, Wait(WaitReason.ACTIVATION)),
    ],
)
def test_while_another_one_holds_the_former_lease_every_owner_gives_its_objects_up(
    shard: str | None, drain: str | None, decision: Decision
) -> None:
    subject = website(OF_B, shard=shard, drain=drain)
    view = make_view(
        {"a-1": ShardState.READY, "b-1": ShardState.READY, "dead-1": ShardState.DEAD},
        {"a": "a-1", "b": "b-1"},
    )
    assert planned(subject, view, activated=False, former_controller_works=True) == decision


@pytest.mark.parametrize("shard", [None, "c-dead"])
def test_nothing_is_assigned_before_the_former_controller_s_lease_is_ours(shard: str | None) -> None:
    assert planned(website(OF_A, shard=shard), TWO, activated=False) == Wait(WaitReason.ACTIVATION)


def test_an_object_whose_place_waits_for_its_next_life_waits_with_it() -> None:
    view = make_view({"a-1": ShardState.DEAD, "b-1": ShardState.READY}, {"a": None, "b": "b-1"})
    assert planned(website(name_for(view, "a"), shard="a-1"), view) == Wait(WaitReason.PLACE_SETTLING, 101.0)
    assert planned(website(name_for(view, "b"), shard="a-1"), view) == Assign("b-1", was="a-1")


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (ShardState.READY, Assign("a-1")),
        (ShardState.EXPIRED, Assign("a-1")),
        (ShardState.UNCERTAIN, Assign("a-1")),
        (ShardState.RELEASED, Wait(WaitReason.TARGET_SILENT)),
    ],
)
def test_only_a_held_lease_is_given_objects(state: ShardState, decision: object) -> None:
    assert planned(website(OF_A), changed(TWO, a=state)) == decision


def test_objects_being_deleted_are_assigned_like_others() -> None:
    subject = website(OF_A)
    subject.meta.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert planned(subject, TWO) == Assign("a-1")


def test_a_parent_of_a_dead_shard_waits_for_its_children_but_not_for_ever() -> None:
    since = TWO.at - CHILDREN_FIRST_S + 1
    pending = website(OF_A, shard="c-dead", children_since=since)
    assert planned(pending, TWO) == Wait(WaitReason.CHILDREN_FIRST, since + CHILDREN_FIRST_S)
    late = website(OF_A, shard="c-dead", children_since=TWO.at - CHILDREN_FIRST_S)
    assert planned(late, TWO) == Assign("a-1", was="c-dead")


# ---- controlled objects without an owner --------------------------------------------------------------------------


def test_an_unlabelled_child_needs_its_controller_looked_at() -> None:
    decision = planned(child_of(OF_A), TWO)
    assert isinstance(decision, NeedController)
    assert (decision.controller.name, decision.controller.namespace) == (OF_A, "ns")


@pytest.mark.parametrize(
    ("controller", "decision"),
    [
        (ControllerSeen("a-1"), Assign("a-1")),
        (ControllerSeen("b-1"), Assign("b-1")),
        (ControllerSeen("c-expired"), Assign("c-expired")),
        (ControllerSeen("c-dead"), Assign("a-1")),
        (ControllerSeen(None), Assign("a-1")),
        (ControllerSeen(exists=False), NOTHING),
        (ControllerSeen("c-released"), Wait(WaitReason.TARGET_SILENT)),
        (ControllerSeen("c-contested"), Wait(WaitReason.CONTROLLER_CONTESTED)),
        (ControllerSeen("stranger-1"), ReportUnknown("stranger-1")),
    ],
)
def test_an_unlabelled_child_follows_its_controller_s_live_owner(
    controller: ControllerSeen, decision: object
) -> None:
    assert planned(child_of(OF_A, controller=controller), TWO) == decision


def test_a_child_of_a_dead_owner_goes_where_its_controller_will_go() -> None:
    assert planned(child_of(OF_A, shard="c-dead"), TWO) == Assign("a-1", was="c-dead")


def test_a_child_of_a_dead_owner_whose_controller_lives_elsewhere_joins_it() -> None:
    subject = child_of(OF_A, shard="c-dead", controller=ControllerSeen("b-1"))
    assert planned(subject, TWO) == Assign("b-1", was="c-dead")


# ---- with a live owner --------------------------------------------------------------------------------------------


def test_an_object_in_its_place_is_left_alone() -> None:
    assert planned(website(OF_A, shard="a-1"), TWO) == NOTHING


def test_an_object_of_another_live_owner_is_asked_for() -> None:
    assert planned(website(OF_A, shard="b-1"), TWO) == Drain("b-1", "a-1")


def test_an_object_of_an_older_life_of_the_same_member_is_asked_for() -> None:
    view = make_view({"a-1": ShardState.READY, "a-2": ShardState.READY}, {"a": "a-2"})
    assert planned(website("x", shard="a-1"), view) == Drain("a-1", "a-2")


@pytest.mark.parametrize("state", [ShardState.EXPIRED, ShardState.UNCERTAIN, ShardState.RELEASED])
def test_no_new_drain_points_to_a_shard_that_does_not_renew(state: ShardState) -> None:
    assert planned(website(OF_A, shard="b-1"), changed(TWO, a=state)) == Wait(WaitReason.TARGET_SILENT)


@pytest.mark.parametrize("owner", ["c-expired", "c-released"])
def test_an_owner_that_does_not_renew_is_not_asked(owner: str) -> None:
    assert planned(website(OF_A, shard=owner), TWO) == Wait(WaitReason.OWNER_SILENT)


def test_nothing_moves_between_live_shards_while_paused() -> None:
    assert planned(website(OF_A, shard="b-1"), TWO, paused=True) == Wait(WaitReason.PAUSED)
    assert planned(website(OF_A, shard="b-1", drain="c-dead"), TWO, paused=True) == NOTHING


def test_objects_of_live_owners_stay_while_their_place_is_empty() -> None:
    view = make_view({"b-1": ShardState.READY}, {"a": None, "b": "b-1"})
    subject = website(name_for(view, "a"), shard="b-1")
    assert planned(subject, view) == Wait(WaitReason.PLACE_SETTLING, 101.0)


def test_with_no_member_on_the_ring_owned_objects_stay() -> None:
    assert planned(website("x", shard="a-1"), make_view({"a-1": ShardState.READY}, {})) == NOTHING


def test_a_request_in_flight_to_the_right_shard_is_left_alone() -> None:
    assert planned(website(OF_A, shard="b-1", drain="a-1"), TWO) == NOTHING


@pytest.mark.parametrize("drain", ["", "c-dead", "c-contested", "c-expired", "b-1", "stranger-1", "No_Name"])
def test_a_request_in_flight_to_anywhere_else_is_pointed_to_the_right_shard(drain: str) -> None:
    assert planned(website(OF_A, shard="b-1", drain=drain), TWO) == UpdateDrain("b-1", "a-1", was=drain)


def test_a_request_that_is_no_longer_wanted_is_taken_back_through_the_owner() -> None:
    assert planned(website(OF_A, shard="a-1", drain="b-1"), TWO) == UpdateDrain("a-1", "a-1", was="b-1")
    assert planned(website(OF_A, shard="a-1", drain="a-1"), TWO) == NOTHING


def test_a_request_in_flight_is_not_pointed_to_a_shard_that_does_not_renew() -> None:
    view = changed(TWO, a=ShardState.EXPIRED)
    subject = website(OF_A, shard="b-1", drain="c-dead")
    assert planned(subject, view) == Wait(WaitReason.TARGET_SILENT)


@pytest.mark.parametrize("drain", [None, "a-1", "b-1"])
def test_a_child_is_moved_by_its_owner_together_with_its_parent(drain: str | None) -> None:
    assert planned(child_of(OF_A, shard="b-1", drain=drain), TWO) == NOTHING
    at_home = child_of(OF_A, shard="b-1", drain=drain, controller=ControllerSeen("b-1"))
    assert planned(at_home, TWO) == NOTHING


def test_a_child_left_behind_is_sent_after_its_parent() -> None:
    subject = child_of(OF_A, shard="b-1", controller=ControllerSeen("a-1"))
    assert planned(subject, TWO) == Drain("b-1", "a-1")


def test_a_shard_without_our_protocol_is_asked_for_each_object() -> None:
    view = make_view(
        {"a-1": ShardState.READY, "b-1": ShardState.READY}, {"a": "a-1", "b": "b-1"}, hands_over=False
    )
    name = name_for(view, "a")
    assert planned(child_of(name, shard="b-1"), view) == Drain("b-1", "a-1")
    assert planned(child_of(name, shard="b-1", drain="true"), view) == NOTHING
    assert planned(website(name, shard="b-1", drain="true"), view) == NOTHING


# ---- given up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["releasing", "deselected"])
@pytest.mark.parametrize(
    ("shard", "drain", "decision"),
    [
        (None, None, NOTHING),
        (None, "a-1", Strip()),
        ("a-1", None, ReleaseDrain("a-1")),
        ("a-1", "b-1", ReleaseDrain("a-1")),
        ("a-1", "", NOTHING),
        ("c-expired", None, ReleaseDrain("c-expired")),
        ("c-dead", None, Strip()),
        ("c-dead", "", Strip()),
        ("No_Name", None, Strip()),
        ("stranger-1", None, ReportUnknown("stranger-1")),
    ],
)
def test_an_object_is_given_up_through_its_owner(
    how: str, shard: str | None, drain: str | None, decision: object
) -> None:
    subject = website(OF_A, shard=shard, drain=drain, selected=how != "deselected")
    assert planned(subject, TWO, releasing=how == "releasing") == decision


@pytest.mark.parametrize(
    ("shard", "without_lease"), [("c-dead", ""), ("No_Name", ""), ("stranger-1", "stranger-1")]
)
def test_what_is_dead_for_want_of_a_lease_is_stripped_on_evidence(shard: str, without_lease: str) -> None:
    view = dataclasses.replace(TWO, unknown_are_dead=True)
    assert planned(website(OF_A, shard=shard), view, releasing=True) == Strip(without_lease)


def test_an_object_that_is_selected_again_before_it_was_given_up_stays() -> None:
    assert planned(website(OF_A, shard="a-1", drain=""), TWO) == UpdateDrain("a-1", "a-1", was="")


def test_a_child_is_given_up_with_its_parent_and_alone_only_when_left_behind() -> None:
    assert planned(child_of(OF_A, shard="a-1"), TWO, releasing=True) == NOTHING
    with_parent = child_of(OF_A, shard="a-1", controller=ControllerSeen("a-1"))
    assert planned(with_parent, TWO, releasing=True) == NOTHING
    left_behind = child_of(OF_A, shard="a-1", controller=ControllerSeen(None))
    assert planned(left_behind, TWO, releasing=True) == ReleaseDrain("a-1")


@pytest.mark.parametrize(
    ("shard", "decision"), [(None, NOTHING), ("a-1", ReleaseDrain("a-1")), ("c-dead", Strip())]
)
def test_an_object_that_no_object_of_the_ring_controls_is_never_assigned_and_loses_its_label(
    shard: str | None, decision: object
) -> None:
    assert planned(Subject(make_meta("x", shard=shard), Outsider()), TWO) == decision
