"""Limits of handoffs in flight."""

from __future__ import annotations

from kubeio.models import ObjectKey, ObjectRef
from sharder.moving.budget import DrainBudget


def ref(name: object) -> ObjectRef:
    return ObjectRef("websites.example.com", ObjectKey("ns", str(name)))


def budget(*, total: int = 5, per_owner: int = 3) -> DrainBudget:
    return DrainBudget(max_in_flight=total, max_per_owner=per_owner, timeout_s=60)


def test_available_is_what_both_limits_leave() -> None:
    limits = budget()
    for i in range(3):
        limits.begin(ref(i), owner="a", at=0)
    assert (limits.available("a", at=1), limits.available("b", at=1)) == (0, 2)


def test_an_answered_handoff_frees_budget() -> None:
    limits = budget(total=1)
    limits.begin(ref("x"), owner="a", at=0)
    limits.end(ref("x"))
    limits.end(ref("never begun"))
    assert limits.available("a", at=1) == 1


def test_a_shard_that_hangs_with_every_handoff_stops_the_others_only_until_the_timeout() -> None:
    limits = budget(total=3)
    for i in range(3):
        limits.begin(ref(i), owner="hangs", at=i)
    assert limits.available("other", at=59) == 0
    assert limits.next_deadline(at=59) == 60
    assert limits.available("other", at=60) == 1
    assert limits.available("other", at=62) == 3
    assert limits.available("hangs", at=62) == 1
    assert list(limits.overdue(at=61)) == [ref(0), ref(1)]
    assert limits.in_flight() == {"hangs": 3}


def test_owners_that_are_late_are_asked_last() -> None:
    limits = budget()
    limits.begin(ref("x"), owner="hangs", at=0)
    limits.begin(ref("y"), owner="slow", at=30)
    assert limits.in_order(["hangs", "slow", "well"], at=59) == ["hangs", "slow", "well"]
    assert limits.in_order(["hangs", "slow", "well"], at=60) == ["slow", "well", "hangs"]
    limits.end(ref("x"))
    assert limits.in_order(["hangs", "slow", "well"], at=60) == ["hangs", "slow", "well"]


def test_seeing_the_same_handoff_again_does_not_make_it_younger() -> None:
    limits = budget()
    limits.begin(ref("x"), owner="a", at=0)
    limits.begin(ref("x"), owner="a", at=50)
    assert list(limits.overdue(at=60)) == [ref("x")]


def test_a_handoff_of_the_next_owner_is_a_new_one() -> None:
    limits = budget()
    limits.begin(ref("x"), owner="a", at=0)
    limits.begin(ref("x"), owner="b", at=50)
    assert limits.in_flight() == {"b": 1}
    assert not limits.overdue(at=60)


def test_limits_may_be_exceeded_by_others_without_harm() -> None:
    limits = budget(total=1)
    for i in range(4):
        limits.begin(ref(i), owner="a", at=0)
    assert limits.available("a", at=1) == 0


def test_handoffs_known_before_an_instant_are_those_first_seen_before_it() -> None:
    limits = budget()
    limits.begin(ref("early"), owner="a", at=1.0)
    limits.begin(ref("early"), owner="a", at=5.0)
    limits.begin(ref("late"), owner="a", at=3.0)
    assert limits.begun_before(3.0) == [ref("early")]


def test_unrequested_drains_take_a_tenth_of_the_budget_at_most() -> None:
    limits = budget(total=100, per_owner=20)
    for number in range(1000):
        limits.begin(ref(number), owner=f"s-{number % 10}", at=0, asked=False)
    assert limits.available("s-0", at=1) == 18
    assert limits.available("other", at=1) == 20
    for number in range(88):
        limits.begin(ref(f"asked-{number}"), owner=f"t-{number % 8}", at=1)
    assert limits.available("s-0", at=1) == 2
    for number in range(1000):
        limits.end(ref(number))
    assert limits.available("s-0", at=1) == 12
    assert limits.available("s-0", at=61) == 20, "what is overdue takes no room"


def test_an_owner_that_hangs_is_tried_with_one_handoff_per_timeout_until_it_answers() -> None:
    limits = budget(total=9)
    for number in range(3):
        limits.begin(ref(number), owner="hangs", at=0)
    assert limits.available("hangs", at=59) == 0
    assert limits.available("hangs", at=60) == 1
    limits.begin(ref("probe"), owner="hangs", at=60)
    assert [limits.available("hangs", at=at) for at in (61, 119, 120)] == [0, 0, 1]
    limits.answered(ref("probe"), at=125)
    assert limits.available("hangs", at=125) == 3, "it answers, and keeps three objects back"
    assert limits.available("hangs", at=185) == 1
