"""Members that their StatefulSet scaled away (protocol, 5.10 and 4), in simulations of Leases."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.view import OwnerState, Unplaced, View, WaitReason
from sharder.rings.status import plan_members
from tests.sharder.pure.lease_simulation import LeaseSimulation, fleet, is_dead, reason_of_hold

LIFE = "m1-00000001"
KEYS = [f"example.com_sites_site-{number}" for number in range(200)]


def owners(view: View) -> set[str]:
    """Every shard that an object would be given to now."""
    wanted = (view.desired(key) for key in KEYS)
    return {each.shard for each in wanted if each is not None and each.shard}


def test_a_leaving_member_loses_its_place_at_once_and_keeps_its_objects_until_they_are_handed_over() -> None:
    sim = fleet(4)
    assert LIFE in owners(sim.view())
    sim.leave(LIFE)
    sim.read()
    view = sim.view()
    assert LIFE not in owners(view)
    assert "m1" not in view.ring_members
    assert view.owner_state(LIFE) is OwnerState.LIVE
    assert view.shards[LIFE].unplaced is Unplaced.LEAVING
    sim.run(300)
    assert sim.takes_of(LIFE) == [], "it renews"
    assert sim.state(LIFE) is ShardState.READY


def test_the_ring_s_status_shows_a_leaving_member_without_a_place() -> None:
    sim = fleet(4)
    sim.leave(LIFE)
    sim.read()
    (row,) = [row for row in plan_members(sim.view(), {LIFE: 3}) if row["name"] == "m1"]
    assert (row["place"], row["state"], row["inFlight"]) == ("none", "leaving", 3)
    assert row["reason"] == "its replica is scaled away"


def test_a_leaving_member_that_releases_its_lease_is_taken_at_once_hold_or_not() -> None:
    for hold in (False, True):
        sim = LeaseSimulation(hold_s=60)
        for number in range(3):
            sim.join(f"m{number}-00000001", member=f"m{number}", hold=hold)
        sim.run(5)
        sim.leave(LIFE)
        sim.release(LIFE)
        sim.run(0.5)
        assert is_dead(sim.view(), LIFE), hold


def test_a_leaving_member_that_is_killed_is_taken_after_two_durations() -> None:
    sim = fleet(4)
    sim.leave(LIFE)
    sim.kill(LIFE)
    since = sim.at
    sim.run(60)
    ((at, take),) = sim.takes_of(LIFE)
    assert 30 <= at - since < 32
    assert not take.contested


def test_a_next_life_of_a_leaving_member_fills_its_place() -> None:
    """Scaled up again: the next pod of that name is born when the leaving one is gone, or deleted by force."""
    sim = fleet(4)
    sim.leave(LIFE)
    sim.run(5)
    sim.join("m1-00000002", member="m1")
    sim.run(5)
    assert sim.view().shard_at("m1") == "m1-00000002"
    sim.release(LIFE)
    sim.run(5)
    assert sim.view().shard_at("m1") == "m1-00000002"


def test_members_that_leave_together_leave_one_ring_behind() -> None:
    sim = fleet(4)
    sim.leave(LIFE)
    sim.leave("m2-00000001")
    sim.read()
    assert set(sim.view().ring_members) == {"m0", "m3"}


def test_when_every_member_leaves_nothing_moves() -> None:
    sim = fleet(2)
    for name in list(sim.leases):
        sim.leave(name)
    sim.run(5)
    assert sim.view().desired(KEYS[0]) is None
    assert reason_of_hold(sim) is WaitReason.NO_MEMBERS


def test_a_new_leader_knows_who_is_leaving() -> None:
    sim = fleet(4)
    sim.leave(LIFE)
    sim.run(1)
    sim.machine = Membership(sim.spec)
    for _ in range(40):
        sim.run(0.5)
        assert LIFE not in owners(sim.view())
    assert set(sim.view().ring_members) == {"m0", "m2", "m3"}


STEPS = st.lists(
    st.tuples(st.sampled_from(["leave", "kill", "release", "next", "wait", "fail over"]), st.integers(0, 3)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_leaving_shard_never_gets_an_object(steps: list[tuple[str, int]]) -> None:
    sim = fleet(4)
    names = {number: f"m{number}-00000001" for number in range(4)}
    leaving: set[str] = set()
    for count, (what, number) in enumerate(steps):
        name = names[number]
        match what:
            case "leave" if name in sim.alive:
                sim.leave(name)
                leaving.add(name)
            case "kill":
                sim.kill(name)
            case "release" if name in sim.alive:
                sim.release(name)
            case "next" if name not in sim.alive:
                names[number] = f"m{number}-1000{count:04d}"
                sim.join(names[number], member=f"m{number}")
            case "fail over":
                sim.machine = Membership(sim.spec)
            case _:
                sim.run(3)
        sim.read()
        assert not owners(sim.view()) & leaving
        sim.run(1)
        assert not owners(sim.view()) & leaving
