"""A ring's status: what people read of members, conditions and the last convergence."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from kubeio.errors import Forbidden
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, View, WaitReason
from sharder.rings.counts import ObjectCounts
from sharder.rings.status import (
    Condition,
    Convergence,
    Rebalanced,
    RingProgress,
    plan_conditions,
    plan_members,
    plan_status,
    worst_first,
)
from sharder.unowned.permissions import FORGET_S, TRY_AGAIN_S, MissingPermissions, Permission
from tests.sharder.pure.views import make_view

IDLE = RingProgress(unassigned=0, in_flight={}, late={}, is_converged=True, paused=False)
TWO = make_view({"a-1": ShardState.READY, "b-1": ShardState.EXPIRED}, {"a": "a-1", "b": "b-1"})


def condition(kind: str, view: View, progress: RingProgress = IDLE) -> Condition:
    return next(one for one in plan_conditions(view, progress) if one.type == kind)


def test_objects_whose_labels_name_no_shard_are_reported_and_leave_the_ring_balanced() -> None:
    forged = replace(IDLE, unassigned=16_000, unknown_named=16_000)
    balanced = condition("Balanced", TWO, forged)
    assert (balanced.status, balanced.reason) == (True, "Converged")
    assert "16,000 objects wait since their labels name no shard" in balanced.message
    assert not condition("Balanced", TWO, replace(forged, unassigned=16_001)).status
    releasing = condition("Releasing", TWO, replace(forged, released=3))
    assert "16,000 objects wait" in releasing.message


def test_a_former_controller_that_leads_beside_the_ring_is_named() -> None:
    ready = condition("Ready", TWO, replace(IDLE, former_holder="old-1"))
    assert (ready.status, ready.reason) == (False, "FormerController")
    assert "old-1 holds the former controller's Lease" in ready.message


def test_a_former_lease_out_of_reach_is_named_before_and_after_the_activation() -> None:
    unreachable = replace(IDLE, former_holder="old-1", former_problem="no Role", activated=False)
    ready = condition("Ready", TWO, unreachable)
    assert (ready.status, ready.reason) == (False, "FormerLease")
    assert ready.message == "no object gets an owner; no Role"
    activated = replace(IDLE, former_problem="no Role", refused=2, refusals=["by policy"])
    ready = condition("Ready", TWO, activated)
    assert (ready.status, ready.reason) == (True, "FormerLease")
    assert ready.message == (
        "2 members share the objects; no Role; the API server refuses to label 2 objects: by policy"
    )


def test_a_ring_that_cannot_give_its_former_lease_back_says_why() -> None:
    stuck = replace(IDLE, released=7, former_problem="no Role")
    for kind in ("Ready", "Releasing"):
        assert condition(kind, TWO, stuck).message.endswith("7 objects given up, 0 being given up; no Role")


# ---- members --------------------------------------------------------------------------------------------------


def test_a_member_is_shown_with_place_life_state_share_and_what_is_in_flight() -> None:
    first, second = plan_members(TWO, {"a-1": 3})
    assert first["share"] != 0
    assert {**first, "share": None} == {
        "name": "a",
        "place": "filled",
        "shard": "a-1",
        "state": "ready",
        "weight": 1.0,
        "share": None,
        "inFlight": 3,
    }
    assert (second["shard"], second["state"], second["inFlight"]) == ("b-1", "expired", 0)
    assert round(float(str(first["share"])) + float(str(second["share"])), 4) == 1.0


def test_a_place_that_waits_for_its_next_life_is_settling() -> None:
    view = make_view({"a-1": ShardState.DEAD}, {"a": None})
    assert [(m["place"], m["shard"], m["state"]) for m in plan_members(view, {})] == [
        ("settling", "", "vacant")
    ]


def test_of_more_members_than_a_status_can_carry_those_in_trouble_are_shown() -> None:
    states = {f"m{n:03}-1": ShardState.EXPIRED if n == 90 else ShardState.READY for n in range(100)}
    rows = plan_members(make_view(states, {f"m{n:03}": f"m{n:03}-1" for n in range(100)}), {})
    assert [row["name"] for row in worst_first(rows, most=3)] == ["m000", "m001", "m090"]
    assert worst_first(rows) == rows


def test_a_thousand_members_take_an_eighth_of_what_etcd_takes() -> None:
    names = [f"controller-7d9f8b6c5d-{n:05}-0123abcd" for n in range(1000)]
    view = make_view(dict.fromkeys(names, ShardState.READY), {name[:-9]: name for name in names})
    status = plan_status(view, IDLE, generation=1, conditions=[])
    assert len(msgspec.json.encode(status)) < 1_500_000 / 8


def test_a_member_without_a_place_is_shown_while_its_objects_cannot_move() -> None:
    view = make_view(
        {"a-1": ShardState.READY, "b-1": ShardState.CONTESTED, "c-1": ShardState.DEAD}, {"a": "a-1"}
    )
    shown = {m["name"]: (m["place"], m["shard"], m["state"], m["share"]) for m in plan_members(view, {})}
    assert shown["b"] == ("none", "b-1", "contested", 0.0)
    assert "c" not in shown, "its objects are given away: it is history"


def test_of_several_lives_of_a_member_the_one_at_its_place_is_shown() -> None:
    view = make_view({"a-1": ShardState.READY, "a-2": ShardState.READY}, {"a": "a-2"})
    assert [m["shard"] for m in plan_members(view, {})] == ["a-2"]


def test_only_members_that_are_ready_at_their_place_are_available() -> None:
    view = make_view(
        {"a-1": ShardState.READY, "b-1": ShardState.EXPIRED, "c-1": ShardState.READY},
        {"a": "a-1", "b": "b-1"},
    )
    status = plan_status(view, IDLE, generation=4, conditions=[])
    assert (status["availableShards"], status["shards"], status["observedGeneration"]) == (1, 3, 4)


# ---- conditions -----------------------------------------------------------------------------------------------


def test_a_right_that_is_missing_is_what_ready_says_before_anything_else() -> None:
    held = replace(TWO, hold=AssignmentHold(WaitReason.MIN_MEMBERS))
    assert condition("Ready", held).reason == "Waiting"
    missing = replace(IDLE, denied=["patch secrets: ada may not"])
    found = condition("Ready", held, missing)
    assert (found.status, found.reason, found.message) == (False, "Forbidden", "patch secrets: ada may not")


def test_of_many_problems_a_few_are_named_and_the_others_counted() -> None:
    found = condition("Ready", TWO, replace(IDLE, denied=[f"right {number}" for number in range(5)]))
    assert found.message == "right 0; right 1; right 2; and 2 more"


def test_balanced_says_what_is_missing_to_it() -> None:
    assert condition("Balanced", TWO).status
    moving = replace(IDLE, is_converged=False, unassigned=2, in_flight={"a-1": 3})
    assert condition("Balanced", TWO, moving) == Condition(
        "Balanced", False, "Moving", "2 objects without an owner, 3 being handed over"
    )
    assert condition("Balanced", TWO, replace(moving, paused=True)).reason == "Paused"
    no_members = condition("Balanced", make_view({}, {}))
    assert (no_members.status, no_members.reason) == (False, "NoMembers")


def test_drain_stuck_names_the_shards_and_members_uncertain_the_members() -> None:
    late = condition("DrainStuck", TWO, replace(IDLE, late={"b-1": 2, "a-1": 1}))
    assert late.status
    assert late.message.endswith("a-1 (1), b-1 (2)")
    named = condition(
        "DrainStuck", TWO, replace(IDLE, late={"a-1": 1}, late_objects=["websites.example.com/ns/x"])
    )
    assert named.message.endswith("a-1 (1); first: websites.example.com/ns/x")
    view = make_view({"a-1": ShardState.UNCERTAIN}, {"a": "a-1"})
    assert condition("MembersUncertain", view).message == "members do not renew: a"
    assert not condition("MembersUncertain", TWO).status


def test_counts_and_pace_are_there_if_they_are_known() -> None:
    unknown = plan_status(TWO, IDLE, generation=1, conditions=[])
    assert (unknown["objects"], unknown["misplaced"], unknown["progress"]) == (None, None, None)
    counted = replace(
        IDLE,
        unassigned=5,
        counts=ObjectCounts({"a-1": 60, "b-1": 40}, misplaced=10),
        per_s=3.14159,
        left_s=4.7,
    )
    status = plan_status(TWO, counted, generation=1, conditions=[])
    assert (status["objects"], status["misplaced"]) == (105, 10)
    assert status["progress"] == {"objectsPerSecond": 3.14, "secondsLeft": 5}
    assert [row["objects"] for row in status["members"]] == [60, 40]  # type: ignore[attr-defined]
    stuck = plan_status(TWO, replace(counted, per_s=0.0, left_s=None), generation=1, conditions=[])
    assert stuck["progress"] == {"objectsPerSecond": 0.0}


def test_the_last_convergence_is_shown_once_there_was_one() -> None:
    assert "lastConvergence" not in plan_status(TWO, IDLE, generation=1, conditions=[])
    last = Convergence(at="2026-11-21T10:00:00Z", took_s=1.23456, objects=7)
    status = plan_status(TWO, replace(IDLE, last=last), generation=1, conditions=[])
    assert status["lastConvergence"] == {
        "time": "2026-11-21T10:00:00Z",
        "durationSeconds": 1.235,
        "objects": 7,
    }
    assert "lastRebalance" not in status
    rebalanced = Rebalanced(at="2026-11-21T10:00:00Z", took_s=0.98765, moved=4)
    status = plan_status(TWO, replace(IDLE, rebalanced=rebalanced), generation=1, conditions=[])
    assert status["lastRebalance"] == {"time": "2026-11-21T10:00:00Z", "durationSeconds": 0.988, "moved": 4}


# ---- a ring that is being deleted -----------------------------------------------------------------------------

GIVEN_UP = replace(IDLE, is_converged=False, released=46_034, in_flight={"a-1": 900, "b-1": 99})


def test_a_ring_that_is_given_up_says_so_and_how_far_it_is() -> None:
    reported = "46,034 objects given up, 999 being given up"
    assert condition("Ready", TWO, GIVEN_UP) == Condition(
        "Ready", False, "Releasing", f"the ring is being given up: {reported}"
    )
    assert condition("Releasing", TWO, GIVEN_UP) == Condition("Releasing", True, "RingDeleted", reported)
    assert plan_status(TWO, GIVEN_UP, generation=1, conditions=[])["released"] == 46_034
    begun = replace(IDLE, released=0)
    assert plan_status(TWO, begun, generation=1, conditions=[])["released"] == 0
    assert condition("Ready", TWO, begun).message.endswith(": 0 objects given up, 0 being given up")


def test_a_ring_that_is_given_up_is_never_balanced_nor_short_of_owners() -> None:
    for found in (GIVEN_UP, replace(GIVEN_UP, is_converged=True, paused=True)):
        balanced = condition("Balanced", TWO, found)
        assert (balanced.status, balanced.reason) == (False, "Releasing")
    held = replace(TWO, hold=AssignmentHold(WaitReason.MIN_MEMBERS))
    assert condition("Ready", held, GIVEN_UP).reason == "Releasing"


def test_a_missing_right_is_more_important_than_that_the_ring_is_given_up() -> None:
    missing = replace(GIVEN_UP, denied=["patch secrets: ada may not"])
    assert condition("Ready", TWO, missing).reason == "Forbidden"
    assert condition("Releasing", TWO, missing).reason == "RingDeleted"


def test_a_ring_that_goes_on_says_nothing_of_a_release() -> None:
    assert "released" not in plan_status(TWO, IDLE, generation=1, conditions=[])
    assert [one.type for one in plan_conditions(TWO, IDLE)] == [
        "Ready",
        "Balanced",
        "DrainStuck",
        "MembersUncertain",
    ]


# ---- rights ---------------------------------------------------------------------------------------------------

SECRETS = Permission("patch", "secrets", "team")


class Clerk:
    """Denials on a clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes: list[tuple[str, bool]] = []
        self.permissions = MissingPermissions(
            now=lambda: self.now, on_change=lambda right, missing: self.changes.append((str(right), missing))
        )

    def refuse(self, right: Permission = SECRETS) -> None:
        message = (
            f'secrets is forbidden: User "ada" cannot {right.verb} resource "{right.resource}" in API group ""'
            f' in the namespace "{right.namespace}"'
        )
        self.permissions.failed(right, Forbidden("PATCH x", status=403, reason="Forbidden", message=message))


def test_a_right_that_is_missing_is_tried_once_in_a_while_and_no_more() -> None:
    clerk = Clerk()
    assert clerk.permissions.may_try(SECRETS)
    clerk.refuse()
    assert not clerk.permissions.may_try(SECRETS)
    clerk.now = TRY_AGAIN_S
    assert [clerk.permissions.may_try(SECRETS) for _ in range(3)] == [True, False, False]
    assert clerk.permissions.may_try(Permission("patch", "secrets", "other")), (
        "another namespace may be allowed"
    )


def test_missing_and_granted_are_reported_once_each() -> None:
    clerk = Clerk()
    clerk.refuse()
    clerk.refuse()
    clerk.permissions.granted(SECRETS)
    clerk.permissions.granted(SECRETS)
    assert clerk.changes == [
        ("patch secrets in namespace team", True),
        ("patch secrets in namespace team", False),
    ]
    assert len(clerk.permissions) == 0


def test_what_nothing_asks_for_any_more_is_forgotten() -> None:
    clerk = Clerk()
    clerk.refuse()
    clerk.now = FORGET_S
    clerk.permissions.forget_old()
    assert clerk.permissions.messages()
    clerk.now = FORGET_S + 1
    clerk.permissions.forget_old()
    assert clerk.permissions.messages() == []


def test_the_message_names_verb_resource_and_the_rule_once_for_all_namespaces() -> None:
    clerk = Clerk()
    for namespace in ("team", "other", "third"):
        clerk.refuse(Permission("patch", "secrets", namespace))
    clerk.refuse(Permission("list", "secrets", "team"))
    reported = clerk.permissions.messages()
    assert len(reported) == 2
    assert reported[0].startswith('list secrets: "ada" may not list secrets in namespace team; ')
    assert reported[1].startswith("patch secrets: ")
    assert 'verbs: ["patch"]' in reported[1]
    assert reported[1].endswith("(and in 2 more namespaces)")


def test_the_right_refused_longest_ago_is_tried_first() -> None:
    clerk = Clerk()
    clerk.refuse(Permission("patch", "secrets", "b"))
    clerk.now = 1.0
    clerk.refuse(Permission("patch", "secrets", "a"))
    clerk.now = 20.0
    assert [right.namespace for right in clerk.permissions.due("patch")] == ["b", "a"]
    assert clerk.permissions.due("list") == []
