"""Shards and the places of their members: the protocol's section 4, in simulations of Leases."""

from __future__ import annotations

import msgspec
import pytest

from kubeio.models import Lease, LeaseSpec
from sharder.membership.actions import Take
from sharder.membership.flapping import Flapping
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, Unplaced, WaitReason
from tests.sharder.pure.lease_simulation import LeaseSimulation, fleet, is_dead

# ---- who fills a place --------------------------------------------------------------------------------------------


def test_a_shard_gets_its_place_when_its_caches_are_full_and_not_before() -> None:
    sim = fleet()
    sim.join("m9-00000001", member="m9", fills=False)
    sim.run(60)
    assert "m9" not in sim.view().ring_members
    assert sim.view().shards["m9-00000001"].unplaced is Unplaced.FILLING
    sim.fill("m9-00000001")
    sim.run(2.5)
    assert sim.view().shard_at("m9") == "m9-00000001"
    assert sim.view().shards["m9-00000001"].unplaced is None


def test_a_lease_that_a_backup_tool_restored_gets_no_place() -> None:
    sim = fleet()
    restored = msgspec.structs.replace(
        sim.leases["m1-00000001"].metadata,
        name="ghost-00000001",
        uid="uid-of-the-copy",
        annotations={**sim.leases["m1-00000001"].metadata.annotations, sim.keys.member: "ghost"},
    )
    sim.write(Lease(restored, LeaseSpec("ghost-00000001", 15, None, "2026-01-01T00:00:00.000000Z")))
    sim.run(29)
    assert "ghost" not in sim.view().ring_members
    assert sim.view().shards["ghost-00000001"].unplaced is Unplaced.UNSEEN
    sim.run(3)
    assert is_dead(sim.view(), "ghost-00000001")


def test_a_sharder_that_starts_gives_every_shard_its_place_at_once_whenever_they_renew() -> None:
    sim = LeaseSimulation()
    for i in range(6):
        sim.join(f"m{i}-00000001", member=f"m{i}")
        sim.run(0.5)
    sim.run(20)
    before = sim.view().ring
    sim.machine = Membership(sim.spec)
    rings = []
    for _ in range(40):
        sim.run(0.5)
        rings.append(sim.view().ring)
    assert set(rings) == {None, before}
    assert rings.index(before) < 6


def test_a_next_life_that_wears_a_held_lease_again_keeps_the_place_while_it_fills_its_caches() -> None:
    sim = LeaseSimulation(hold_s=60)
    sim.join("a-00000001", member="a", hold=True)
    sim.run(5)
    sim.release("a-00000001")
    sim.run(5)
    annotations = dict(sim.leases["a-00000001"].metadata.annotations)
    del annotations[sim.keys.synced]
    sim.edit_meta("a-00000001", annotations=annotations)
    sim.edit("a-00000001", holder_identity="a-00000001", lease_transitions=1)
    sim.alive.add("a-00000001")
    sim.run(30)
    assert sim.view().shard_at("a") == "a-00000001"


def test_members_that_never_fill_their_caches_do_not_count_for_min_members() -> None:
    sim = LeaseSimulation(min_members=2)
    sim.join("a-00000001", member="a")
    sim.join("b-00000001", member="b", fills=False)
    sim.run(30)
    assert sim.view().hold == AssignmentHold(WaitReason.MIN_MEMBERS)


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


def test_a_member_that_flaps_is_reported_until_it_gets_its_place() -> None:
    sim = fleet()
    for number in range(2, 6):
        sim.join(f"m9-{number:08x}", member="m9")
        sim.run(2)
        sim.release(f"m9-{number:08x}")
        sim.run(1)
    sim.join("m9-0000000f", member="m9")
    sim.run(3)
    assert sim.view().shards["m9-0000000f"].unplaced is Unplaced.FLAPPING
    assert "m9" not in sim.view().ring_members
    deadline = sim.machine.iterate(at=sim.at, acting=True)[2]
    assert deadline is not None
    sim.run(30)
    assert sim.view().shard_at("m9") == "m9-0000000f"


# ---- released, holds ----------------------------------------------------------------------------------------------


def test_a_stable_shard_that_restarts_within_its_hold_leaves_the_ring_as_it_was() -> None:
    sim = LeaseSimulation(hold_s=60)
    for i in range(3):
        sim.join(f"web-{i}-00000001", member=f"web-{i}", hold=True)
    sim.run(5)
    version = sim.view().ring_version
    for i in range(3):
        name = f"web-{i}-00000001"
        sim.release(name)
        sim.run(20)
        sim.edit(name, holder_identity=name, lease_transitions=1, renew_time="again")
        sim.alive.add(name)
        sim.run(10)
    assert sim.view().ring_version == version
    assert not [intent for _, intent in sim.decided if isinstance(intent, Take)]


def test_a_ring_that_is_deleted_holds_no_place_of_a_life_that_released() -> None:
    sim = LeaseSimulation(hold_s=60)
    sim.join("a-00000001", member="a", hold=True)
    sim.read()
    sim.run(20)
    sim.machine.configure(sim.spec, releasing_at=sim.at)
    sim.release("a-00000001")
    sim.run(1)
    assert sim.state("a-00000001") is ShardState.DEAD


def test_a_hold_that_passes_ends_in_a_take() -> None:
    sim = LeaseSimulation(hold_s=60)
    sim.join("web-0-00000001", member="web-0", hold=True)
    sim.run(5)
    sim.release("web-0-00000001")
    released_at = sim.at
    sim.run(80)
    assert sim.takes_of("web-0-00000001")[0][0] - released_at == pytest.approx(60, abs=0.5)


def test_a_released_place_may_receive_nothing() -> None:
    sim = LeaseSimulation(hold_s=60)
    sim.join("web-0-00000001", member="web-0", hold=True)
    sim.run(5)
    sim.release("web-0-00000001")
    sim.read()
    view = sim.view()
    assert view.shard_at("web-0") == "web-0-00000001"
    assert (view.holds("web-0-00000001"), view.may_receive("web-0-00000001")) == (False, False)
