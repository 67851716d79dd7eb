"""What Leases may say, labels for people, versions and deadlines of the view: in simulations of Leases."""

from __future__ import annotations

import pytest

from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from sharder.membership.shards import ShardState, read_lease, shows_held
from sharder.membership.view import OwnerState, Unplaced, WaitReason
from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.lease_simulation import NAMESPACE, LeaseSimulation, fleet, make_spec, reason_of_hold

KEYS = RingKeys("r")

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
    sim = fleet()
    sim.write(Lease(Meta(name="odd", namespace=NAMESPACE, labels={KEYS.ring_label: "r"})))
    sim.acting = False
    sim.run(1)
    assert sim.state("odd") is ShardState.RELEASED
    assert [problem.field for problem in sim.view().problems] == ["leases/odd.spec.leaseDurationSeconds"]


@pytest.mark.parametrize("duration_s", [None, -1, 61])
def test_a_shard_whose_duration_does_not_fit_gets_no_place_but_is_watched(duration_s: int | None) -> None:
    sim = fleet(4, max_lease_duration_s=60)
    sim.join("odd-00000001", member="odd", duration_s=duration_s)
    sim.run(10)
    assert "odd" not in sim.view().ring_members
    assert sim.view().owner_state("odd-00000001") is OwnerState.LIVE
    sim.renew("odd-00000001")
    sim.read()
    died_at = sim.at
    sim.kill("odd-00000001")
    sim.run(130)
    waited = 2 * max(duration_s or 60, 60)
    assert sim.takes_of("odd-00000001")[0][0] - died_at == pytest.approx(waited, abs=0.5)


def test_a_shard_of_an_unknown_protocol_gets_no_place() -> None:
    sim = fleet(1)
    sim.join("new-00000001", member="new", protocol="v9")
    sim.run(5)
    assert "new" not in sim.view().ring_members
    assert "v9" in str(sim.view().problems[0])


def test_a_shard_without_protocol_annotation_is_a_member_that_does_not_hand_over() -> None:
    sim = fleet(1)
    sim.join("go-shard", protocol="")
    sim.run(4)
    assert sim.view().shards["go-shard"].unplaced is Unplaced.UNSEEN
    sim.run(4)
    view = sim.view()
    assert view.shard_at("go-shard") == "go-shard"
    assert view.shards["go-shard"].unplaced is None
    assert not view.shards["go-shard"].hands_over


@pytest.mark.parametrize("member", ["a\nb", "x" * 254])
def test_a_member_name_that_cannot_be_one_makes_the_shard_its_own_member(member: str) -> None:
    sim = fleet(1)
    sim.join("odd-00000001", member=member)
    sim.run(5)
    assert sim.view().shard_at("odd-00000001") == "odd-00000001"
    assert sim.view().problems


def test_a_lease_whose_name_cannot_be_a_label_is_left_alone() -> None:
    sim = fleet(1)
    sim.join("x" * 64)
    sim.run(5)
    assert "x" * 64 not in sim.view().shards
    assert [problem.field for problem in sim.view().problems] == [f"leases/{'x' * 64}.metadata.name"]
    sim.kill("x" * 64)
    sim.delete("x" * 64)
    sim.read()
    assert sim.view().problems == ()


def test_only_a_held_lease_of_this_ring_is_evidence() -> None:
    def lease(holder: str, ring: str) -> Lease:
        return Lease(Meta(name="x", labels={KEYS.ring_label: ring}), LeaseSpec(holder, 15))

    assert shows_held(lease("x", "r"), keys=KEYS)
    assert not shows_held(lease("", "r"), keys=KEYS)
    assert not shows_held(lease("sharder:a", "r"), keys=KEYS)
    assert not shows_held(lease("x", "another"), keys=KEYS)


# ---- labels for people, waking up ---------------------------------------------------------------------------------


def test_the_state_label_follows_the_state_and_is_no_sign_of_life() -> None:
    sim = fleet(4)
    sim.kill("m1-00000001")
    label = sim.keys.state
    seen = []
    for _ in range(40):
        sim.run(1)
        seen.append(sim.leases["m1-00000001"].metadata.labels[label])
    assert list(dict.fromkeys(seen)) == ["ready", "expired", "dead"]
    assert len(sim.takes_of("m1-00000001")) == 1


def test_at_rest_there_is_nothing_to_write() -> None:
    sim = fleet()
    sim.run(5)
    assert sim.decide() == []


def test_the_next_deadline_is_when_something_changes_by_itself() -> None:
    sim = fleet(4)
    sim.acting = False
    for name in tuple(sim.alive):
        sim.renew(name)
    sim.read()
    start = sim.at
    assert sim.machine.iterate(at=start, acting=True)[2] == start + 15
    sim.join("new-00000001", member="new")
    sim.read()
    assert sim.machine.iterate(at=start, acting=True)[2] == start + sim.spec.settle_s


def test_deadlines_lie_ahead_whatever_happened() -> None:
    sim = fleet(4, hold_s=5)
    sim.kill("m1-00000001")
    sim.delete("m2-00000001")
    sim.release("m3-00000001")
    for _ in range(300):
        sim.run(0.5)
        deadline = sim.machine.iterate(at=sim.at, acting=True)[2]
        assert deadline is None or deadline > sim.at


def test_the_view_keeps_its_version_while_nothing_changes() -> None:
    sim = fleet()
    version = sim.view().version
    sim.run(10)
    assert sim.view().version == version


def test_a_state_that_moves_no_object_leaves_the_ring_version_alone() -> None:
    sim = fleet()
    ring_version, version = sim.view().ring_version, sim.view().version
    sim.kill("m1-00000001")
    sim.run(16)
    assert sim.state("m1-00000001") is ShardState.EXPIRED
    assert sim.view().ring_version == ring_version
    assert sim.view().version > version
    sim.run(20)
    assert sim.view().ring_version > ring_version


def test_the_deletion_of_an_orphaned_lease_leaves_the_ring_version_alone() -> None:
    """No object carries its name: a pass over all objects would find nothing."""
    sim = fleet()
    sim.kill("m1-00000001")
    sim.run(60)
    assert sim.state("m1-00000001") is ShardState.DEAD
    ring_version, version = sim.view().ring_version, sim.view().version
    sim.run(200)
    assert "m1-00000001" not in sim.view().shards
    assert sim.view().ring_version == ring_version
    assert sim.view().version > version


def test_objects_wait_below_min_members_and_through_the_start_delay() -> None:
    sim = LeaseSimulation(min_members=2, start_delay_s=10)
    sim.join("a-00000001")
    sim.run(5)
    assert reason_of_hold(sim) is WaitReason.START_DELAY
    sim.run(10)
    assert reason_of_hold(sim) is WaitReason.MIN_MEMBERS
    sim.join("b-00000001")
    sim.run(3)
    assert sim.view().hold is None


def test_the_start_delay_begins_anew_after_an_outage() -> None:
    sim = fleet(start_delay_s=10)
    assert sim.view().hold is None
    sim.reachable = False
    sim.run(100)
    sim.reachable = True
    sim.run(9)
    assert reason_of_hold(sim) is WaitReason.START_DELAY
    sim.run(3)
    assert sim.view().hold is None


def test_reads_are_wanted_several_times_within_the_shortest_duration() -> None:
    assert fleet(duration_s=3).machine.read_interval_s == 0.5
    assert fleet(duration_s=60).machine.read_interval_s == 5.0


def test_a_cordoned_member_keeps_its_objects_live_and_loses_its_place() -> None:
    sim = fleet()
    sim.machine.configure(make_spec(members={"m1": MemberSpec(cordoned=True)}))
    sim.run(1)
    assert "m1" in sim.view().ring_members
    sim.run(2)
    assert "m1" not in sim.view().ring_members
    assert sim.view().owner_state("m1-00000001") is OwnerState.LIVE


def test_a_name_may_be_worked_under_until_it_was_released_or_is_dead() -> None:
    sim = fleet(2, max_lease_duration_s=20)
    sim.acting = False
    assert sim.view().may_be_worked == {"m0-00000001", "m1-00000001"}
    sim.release("m0-00000001")
    sim.delete("m1-00000001")
    sim.read()
    assert sim.view().may_be_worked == {"m1-00000001"}, "its process may not have noticed"
    sim.acting = True
    sim.run(19)
    assert sim.state("m1-00000001") is ShardState.CONTESTED
    assert sim.view().may_be_worked == {"m1-00000001"}
    sim.run(2)
    assert sim.view().may_be_worked == frozenset()
