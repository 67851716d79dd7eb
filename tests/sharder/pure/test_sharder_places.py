"""Who fills a place and when that changes: the protocol's "places" and "quick succession"."""

from __future__ import annotations

import pytest

from sharder.membership.actions import Take
from sharder.membership.places import Candidate, Places, PlacesWanted, plan_filler
from sharder.membership.shards import ShardState
from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.story import Story, make_spec


def candidate(name: str, *, state: ShardState = ShardState.READY, created: str = "1") -> Candidate:
    return Candidate(name, "m", state, created)


@pytest.mark.parametrize(
    ("candidates", "filler"),
    [
        ([candidate("a", created="1"), candidate("b", created="2")], "b"),
        ([candidate("b", created="1"), candidate("a", created="1")], "b"),
        ([candidate("a", created="1"), candidate("b", created="2", state=ShardState.EXPIRED)], "a"),
        (
            [
                candidate("a", created="2", state=ShardState.RELEASED),
                candidate("b", state=ShardState.UNCERTAIN),
            ],
            "b",
        ),
        (
            [
                candidate("a", state=ShardState.EXPIRED),
                candidate("b", created="2", state=ShardState.UNCERTAIN),
            ],
            "b",
        ),
    ],
)
def test_the_ready_life_with_the_latest_creation_then_name_fills_the_place(
    candidates: list[Candidate], filler: str
) -> None:
    assert plan_filler(candidates).name == filler
    assert plan_filler(reversed(candidates)).name == filler


def turn(
    places: Places,
    wanted: dict[str, str],
    at: float,
    *,
    gone: frozenset[str] = frozenset(),
    departed: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """Turn to *wanted* (member to shard) and give the places as member to shard, "?" for an empty one."""
    fillers = frozenset(wanted.values()) | {
        place.shard for place in places.current().values() if place.shard and place.shard not in gone
    }
    places.turn(
        {m: PlacesWanted(s, 1.0) for m, s in wanted.items()},
        may_fill=fillers - gone - departed,
        departed=departed,
        at=at,
    )
    return {member: place.shard or "?" for member, place in places.current().items()}


def test_joins_settle_together_one_window_after_the_first() -> None:
    places = Places(settle_s=2)
    assert turn(places, {"a": "a1"}, 10) == {}
    assert turn(places, {"a": "a1", "b": "b1"}, 11.5) == {}
    assert turn(places, {"a": "a1", "b": "b1", "c": "c1"}, 12) == {"a": "a1", "b": "b1", "c": "c1"}


def test_members_that_keep_joining_do_not_postpone_each_other_for_ever() -> None:
    places = Places(settle_s=2)
    wanted: dict[str, str] = {}
    for i in range(20):
        wanted[f"m{i}"] = f"s{i}"
        turned = turn(places, wanted, 10 + i)
    assert len(turned) >= 18


def test_a_place_whose_life_died_stays_empty_for_a_window_and_then_goes() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1", "b": "b1"}, 10)
    turn(places, {"a": "a1", "b": "b1"}, 12)
    assert turn(places, {"b": "b1"}, 20, gone=frozenset({"a1"})) == {"a": "?", "b": "b1"}
    assert turn(places, {"b": "b1"}, 21.9) == {"a": "?", "b": "b1"}
    assert turn(places, {"b": "b1"}, 22) == {"b": "b1"}


def test_a_next_life_within_the_window_fills_the_place_at_once() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    turn(places, {"a": "a1"}, 12)
    turn(places, {}, 20, gone=frozenset({"a1"}))
    assert turn(places, {"a": "a2"}, 21) == {"a": "a2"}
    assert places.next_deadline() is None


def test_a_death_just_before_a_window_closes_still_waits_a_window_of_its_own() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    turn(places, {"a": "a1"}, 12)
    turn(places, {"a": "a1", "b": "b1"}, 20)
    turn(places, {"b": "b1"}, 21.9, gone=frozenset({"a1"}))
    assert turn(places, {"b": "b1"}, 22) == {"a": "?", "b": "b1"}
    assert places.next_deadline() == pytest.approx(23.9)
    assert turn(places, {"b": "b1"}, 23.9) == {"b": "b1"}


def test_a_newer_life_replaces_a_live_one_only_after_the_window() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    turn(places, {"a": "a1"}, 12)
    assert turn(places, {"a": "a2"}, 20) == {"a": "a1"}
    assert turn(places, {"a": "a2"}, 22) == {"a": "a2"}


def test_a_change_taken_back_within_the_window_leaves_no_trace() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    turn(places, {"a": "a1"}, 12)
    turn(places, {"a": "a2"}, 20)
    turn(places, {"a": "a1"}, 21)
    assert places.next_deadline() is None
    assert turn(places, {"a": "a1"}, 30) == {"a": "a1"}


def test_a_member_that_left_before_it_settled_never_was() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    assert turn(places, {}, 11, gone=frozenset({"a1"})) == {}
    assert turn(places, {}, 30) == {}


def test_turning_twice_changes_nothing() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1"}, 10)
    first = turn(places, {"a": "a1"}, 12)
    assert turn(places, {"a": "a1"}, 12) == first


# ---- with the real membership -------------------------------------------------------------------------------------


def settled(*members: str, **spec: object) -> Story:
    story = Story(**spec)  # type: ignore[arg-type]  # passed on to RingSpec
    for member in members:
        story.join(f"{member}-00000001", member=member)
    story.run(5)
    return story


def test_a_process_that_comes_back_as_a_new_life_before_the_old_one_is_dead_keeps_the_ring() -> None:
    story = settled("a", "b", "c", "d")
    ring = story.view().ring
    story.kill("b-00000001")
    story.run(10)
    story.join("b-00000002", member="b")
    story.run(60)
    assert story.view().ring == ring
    assert story.view().shard_at("b") == "b-00000002"
    assert story.view().dead("b-00000001")


def test_a_proven_end_lets_the_next_life_have_the_place_at_once() -> None:
    story = settled("a", "b", "c")
    ring = story.view().ring
    story.kill("b-00000001")
    story.run(3)
    story.join("b-00000002", member="b")
    story.edit("b-00000001", holder_identity="")
    story.read()
    story.act()
    assert story.view().dead("b-00000001")
    assert story.view().shard_at("b") == "b-00000002"
    assert story.view().ring == ring


def test_a_released_life_with_a_hold_is_taken_at_once_when_its_next_life_is_there() -> None:
    story = Story(hold_s=300)
    story.join("a-00000001", member="a", hold=True)
    story.run(5)
    story.release("a-00000001")
    story.run(5)
    assert not story.takes_of("a-00000001")
    story.join("a-00000002", member="a", hold=True)
    story.run(0.5)
    assert story.state("a-00000001") is ShardState.DEAD
    assert story.view().shard_at("a") == "a-00000002"


def test_two_living_processes_of_one_member_have_one_place() -> None:
    story = settled("a", "b")
    story.join("a-00000002", member="a")
    story.run(5)
    view = story.view()
    assert sorted(view.ring_members) == ["a", "b"]
    assert view.shard_at("a") == "a-00000002"
    assert view.holds("a-00000001")
    assert view.holds("a-00000002")


def test_a_member_that_dies_leaves_the_ring_one_window_after_its_lease_was_taken() -> None:
    story = settled("a", "b", "c", "d")
    story.kill("a-00000001")
    story.run(60)
    ((taken_at, _),) = story.takes_of("a-00000001")
    again = settled("a", "b", "c", "d")
    again.kill("a-00000001")
    again.run(taken_at - again.at + 1.5)
    assert again.view().shard_at("a") is None
    assert "a" in again.view().ring_members
    again.run(1)
    assert "a" not in again.view().ring_members


def test_a_contested_life_fills_no_place() -> None:
    story = settled("a", "b", "c")
    story.delete("a-00000001")
    story.run(5)
    assert sorted(story.view().ring_members) == ["b", "c"]


def test_a_rolling_update_of_stable_members_that_take_their_leases_over_moves_nothing() -> None:
    story = Story(hold_s=60)
    for member in ("a", "b", "c"):
        story.join(f"{member}-00000001", member=member, hold=True)
    story.run(5)
    before = story.view()
    for member in ("a", "b", "c"):
        name = f"{member}-00000001"
        story.release(name)
        story.run(20)
        story.edit(name, holder_identity=name, lease_transitions=1)
        story.alive.add(name)
    story.run(5)
    assert story.view().ring_version == before.ring_version
    assert not [intent for _, intent in story.decided if isinstance(intent, Take)]


def test_weights_and_cordons_take_effect_after_the_window() -> None:
    story = settled("a", "b")
    members = {"a": MemberSpec(weight=3), "b": MemberSpec(cordoned=True)}
    story.machine.configure(make_spec(members=members))
    story.run(1)
    assert story.view().ring_members == {"a": 1.0, "b": 1.0}
    story.run(1.5)
    assert story.view().ring_members == {"a": 3.0}


def test_an_uncordoned_member_comes_back() -> None:
    story = settled("a", "b", members={"b": MemberSpec(cordoned=True)})
    assert sorted(story.view().ring_members) == ["a"]
    story.machine.configure(make_spec())
    story.run(3)
    assert sorted(story.view().ring_members) == ["a", "b"]


def test_the_last_member_gone_leaves_no_ring() -> None:
    story = settled("a")
    story.release("a-00000001")
    story.run(5)
    assert story.view().ring is None
    assert story.view().desired("k") is None


def test_a_ring_too_large_to_build_is_reported_and_the_old_one_stays() -> None:
    story = settled("a", "b")
    story.machine.configure(make_spec(members={"a": MemberSpec(weight=0.0001)}))
    story.run(5)
    assert story.view().ring is not None
    assert [problem.field for problem in story.view().problems] == ["spec.members[a].weight"]


def test_a_life_that_departed_leaves_no_place_behind_unless_a_next_one_is_there() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1", "b": "b1", "c": "c1"}, 10)
    assert turn(places, {"a": "a1", "b": "b1", "c": "c1"}, 12) == {"a": "a1", "b": "b1", "c": "c1"}
    both = frozenset({"a1", "b1"})
    assert turn(places, {"b": "b2", "c": "c1"}, 12.1, departed=both) == {"b": "b2", "c": "c1"}
    assert turn(places, {"b": "b2"}, 12.2, gone=frozenset({"c1"})) == {"b": "b2", "c": "?"}
