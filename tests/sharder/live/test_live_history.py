"""What a sharder remembers of a ring: an hour, in a fixed amount of memory."""

from __future__ import annotations

from sharder.live.facts import MemberFacts
from sharder.live.history import BUCKET_S, BUCKETS, Move, RingHistory

READY = MemberFacts(place="filled", shard="a-1", state="ready")


def moved(history: RingHistory, at: float, kind: str = "assigned", name: str = "x") -> None:
    history.moved(Move(kind, name, "", "a"), at=at)


def test_moves_are_counted_by_kind_in_half_minutes() -> None:
    history = RingHistory()
    for kind in ("assigned", "assigned", "takenOver", "handedOver", "asked"):
        moved(history, 1000 * BUCKET_S + 1, kind)
    moved(history, 1001 * BUCKET_S, "handedOver")
    assert history.timeline(at=1001 * BUCKET_S) == [[1000 * BUCKET_S, 2, 1, 1], [1001 * BUCKET_S, 0, 0, 1]]


def test_what_is_older_than_an_hour_is_not_shown() -> None:
    history = RingHistory()
    moved(history, 1000 * BUCKET_S)
    assert history.timeline(at=(1000 + BUCKETS - 1) * BUCKET_S)
    assert not history.timeline(at=(1000 + BUCKETS) * BUCKET_S)


def test_a_clock_that_goes_back_counts_on() -> None:
    history = RingHistory()
    moved(history, 1000 * BUCKET_S)
    moved(history, 900 * BUCKET_S)
    assert history.timeline(at=1000 * BUCKET_S) == [[1000 * BUCKET_S, 2, 0, 0]]


def test_memory_does_not_follow_what_moves() -> None:
    history = RingHistory()
    for number in range(20_000):
        moved(history, number, name=f"n-{number}")
        history.saw({f"m-{number}": READY}, at=number)
    fresh, more = history.take_fresh()
    assert len(fresh) == 20
    assert len(fresh) + more == 20_000
    assert fresh[-1].object == "n-19999"
    assert len(history.timeline(at=20_000)) <= BUCKETS
    assert len(history.happenings) == 250
    assert history.take_fresh() == ([], 0)


def test_who_is_there_at_first_did_not_join() -> None:
    history = RingHistory()
    history.saw({"a": READY}, at=1)
    assert not history.happenings
    history.saw({"a": READY, "b": READY}, at=2)
    assert [(each.what, each.member) for each in history.happenings] == [("joined", "b")]


def test_what_befalls_a_member_is_told_once() -> None:
    history = RingHistory()
    steps = [
        {"a": READY},
        {"a": MemberFacts(place="filled", shard="a-1", state="expired")},
        {"a": MemberFacts(place="filled", shard="a-1", state="expired", in_flight=3)},
        {"a": MemberFacts(place="settling")},
        {"a": MemberFacts(place="filled", shard="a-2", state="ready")},
        {"a": MemberFacts(place="none", shard="a-2", state="contested")},
        {},
    ]
    for at, members in enumerate(steps):
        history.saw(members, at=at)
    assert [each.what for each in history.happenings] == ["expired", "vacant", "ready", "left"]


def test_another_life_of_a_member_is_told() -> None:
    history = RingHistory()
    history.saw({"a": READY}, at=0)
    history.saw({"a": MemberFacts(place="filled", shard="a-2", state="ready")}, at=1)
    assert [each.what for each in history.happenings] == ["next life"]


def test_the_last_hour_of_members_is_shown() -> None:
    history = RingHistory()
    history.saw({}, at=0)
    history.saw({"a": READY}, at=100)
    history.saw({}, at=3000)
    assert [each.what for each in history.recent(at=3650)] == ["joined", "left"]
    assert [each.what for each in history.recent(at=3750)] == ["left"]
