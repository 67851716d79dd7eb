"""Who fills a place and when that changes: the protocol's "places" and "quick succession"."""

from __future__ import annotations

import pytest

from sharder.membership.places import Candidate, Places, PlacesWanted, plan_filler
from sharder.membership.shards import ShardState
from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.lease_simulation import LeaseSimulation, make_spec


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
    places.follow(
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


# ---- with the real membership -------------------------------------------------------------------------------------


def settled(*members: str, **spec: object) -> LeaseSimulation:
    sim = LeaseSimulation(**spec)  # type: ignore[arg-type]  # passed on to RingSpec
    for member in members:
        sim.join(f"{member}-00000001", member=member)
    sim.run(5)
    return sim


def test_an_uncordoned_member_comes_back() -> None:
    sim = settled("a", "b", members={"b": MemberSpec(cordoned=True)})
    assert sorted(sim.view().ring_members) == ["a"]
    sim.machine.configure(make_spec())
    sim.run(3)
    assert sorted(sim.view().ring_members) == ["a", "b"]


def test_the_last_member_gone_leaves_no_ring() -> None:
    sim = settled("a")
    sim.release("a-00000001")
    sim.run(5)
    assert sim.view().ring is None
    assert sim.view().desired("k") is None


def test_a_ring_too_large_to_build_is_reported_and_the_old_one_stays() -> None:
    sim = settled("a", "b")
    sim.machine.configure(make_spec(members={"a": MemberSpec(weight=0.0001)}))
    sim.run(5)
    assert sim.view().ring is not None
    assert [problem.field for problem in sim.view().problems] == ["spec.members[a].weight"]


def test_a_life_that_departed_leaves_no_place_behind_unless_a_next_one_is_there() -> None:
    places = Places(settle_s=2)
    turn(places, {"a": "a1", "b": "b1", "c": "c1"}, 10)
    assert turn(places, {"a": "a1", "b": "b1", "c": "c1"}, 12) == {"a": "a1", "b": "b1", "c": "c1"}
    both = frozenset({"a1", "b1"})
    assert turn(places, {"b": "b2", "c": "c1"}, 12.1, departed=both) == {"b": "b2", "c": "c1"}
    assert turn(places, {"b": "b2"}, 12.2, gone=frozenset({"c1"})) == {"b": "b2", "c": "?"}
