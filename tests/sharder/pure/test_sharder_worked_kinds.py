"""Which shards work which kinds: a ring for each main resource, and what is told where nobody works one."""

from __future__ import annotations

from typing import Any

import pytest

from kubeio.models import GroupResource, OwnerReference
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.view import View, WaitReason
from sharder.planning.decisions import Assign, Decision, Drain, Wait
from sharder.planning.keys import Controlled, ControllerName, Root
from sharder.planning.planner import ControllerSeen, Subject, Terms, plan
from sharder.rings.status import RingProgress, plan_conditions, plan_members
from sharder.ringspec.spec import RingResource
from tests.sharder.pure.lease_simulation import LeaseSimulation
from tests.sharder.pure.views import KEYS, WEBSITES, make_meta

SITES, BASES = "websites.example.com", "databases.example.com"
MAPS = "configmaps"
TWO = (
    RingResource(GroupResource("example.com", "websites"), (GroupResource("", "configmaps"),)),
    RingResource(GroupResource("example.com", "databases")),
)


def two_controllers(**spec: Any) -> LeaseSimulation:
    """Three replicas of each of two controllers, on one ring."""
    sim = LeaseSimulation(resources=TWO, **spec)
    for i in range(3):
        sim.join(f"site-{i}-00000001", member=f"site-{i}", works=f"{SITES},{MAPS}")
        sim.join(f"base-{i}-00000001", member=f"base-{i}", works=BASES)
    sim.run(5)
    return sim


def planned(kind: str, view: View, *, name: str = "x", shard: str | None = None) -> Decision:
    subject = Subject(make_meta(name, shard=shard), Root(f"example.com_ns_{name}", main=kind))
    return plan(subject, view=view, terms=Terms(), keys=KEYS)


def planned_child(view: View, *, name: str, parent_at: str, shard: str | None = None) -> Decision:
    """A ConfigMap of a Website that *parent_at* owns."""
    reference = OwnerReference("example.com/v1", "Website", name, f"uid-of-{name}", controller=True)
    controller = ControllerName(WEBSITES, "ns", name, f"uid-of-{name}")
    role = Controlled(f"example.com_ns_{name}", controller, kind=MAPS, main=SITES)
    meta = make_meta(f"{name}-html", shard=shard, owner_references=[reference])
    subject = Subject(meta, role, controller=ControllerSeen(parent_at, key=role.key))
    return plan(subject, view=view, terms=Terms(), keys=KEYS)


def test_an_object_goes_to_a_shard_that_works_its_kind() -> None:
    view = two_controllers().view()
    for kind, prefix in ((SITES, "site-"), (BASES, "base-")):
        decisions = [planned(kind, view, name=f"o-{number}") for number in range(20)]
        assert all(isinstance(each, Assign) and each.to.startswith(prefix) for each in decisions)


def test_shards_that_all_work_everything_share_one_ring() -> None:
    sim = LeaseSimulation(resources=TWO)
    for i in range(3):
        sim.join(f"m{i}-00000001", member=f"m{i}", works=f"{BASES},{MAPS},{SITES}")
    sim.run(5)
    assert sim.view().rings == {}


def test_main_resources_with_the_same_members_share_one_ring() -> None:
    third = RingResource(GroupResource("example.com", "caches"))
    sim = LeaseSimulation(resources=(*TWO, third))
    sim.join("a-00000001", member="a", works=f"{SITES},{MAPS}")
    sim.join("b-00000001", member="b", works=f"{BASES},caches.example.com")
    sim.run(5)
    rings = sim.view().rings
    assert rings[BASES] is rings["caches.example.com"]
    assert rings[BASES] != rings[SITES]


def test_a_shard_that_does_not_say_what_it_works_works_everything() -> None:
    sim = two_controllers()
    sim.join("go-shard", protocol="")
    sim.run(10)
    owners = {view_owner(sim.view(), kind, n) for kind in (SITES, BASES) for n in range(200)}
    assert "go-shard" in {view_owner(sim.view(), SITES, n) for n in range(200)}
    assert len(owners) == 7


def view_owner(view: View, kind: str, number: int) -> str:
    desired = view.desired(f"example.com_ns_{number}", kind)
    assert desired is not None
    return desired.shard or ""


def test_a_kind_that_no_member_works_waits_and_the_ring_says_so() -> None:
    sim = LeaseSimulation(resources=TWO)
    sim.join("a-00000001", member="a", works=f"{SITES},{MAPS}")
    sim.run(5)
    view = sim.view()
    assert view.unworked == (BASES,)
    assert planned(BASES, view) == Wait(WaitReason.KIND_UNWORKED)
    assert planned(SITES, view) == Assign("a-00000001")
    progress = RingProgress(unassigned=1, in_flight={}, late={}, is_converged=False, paused=False)
    ready = plan_conditions(view, progress)[0]
    assert (ready.status, ready.reason) == (False, "KindUnworked")
    assert BASES in ready.message


def test_a_member_s_share_is_the_mean_over_the_main_resources() -> None:
    view = two_controllers().view()
    shares = {row["name"]: row["share"] for row in plan_members(view, {})}
    assert sum(map(float, map(str, shares.values()))) == pytest.approx(1, abs=1e-4)
    assert all(0.1 < float(str(share)) < 0.25 for share in shares.values())


def test_an_object_never_moves_to_a_shard_of_another_controller() -> None:
    sim = two_controllers()
    owner = view_owner(sim.view(), SITES, 1)
    sim.join("base-9-00000001", member="base-9", works=BASES)
    sim.run(5)
    assert view_owner(sim.view(), SITES, 1) == owner


def test_an_owner_that_does_not_watch_the_kind_is_asked_for_nothing() -> None:
    """Its label was forged, or set by hand: no answer will come, and nobody may be robbed of an object unasked."""
    view = two_controllers().view()
    assert planned(SITES, view, shard="base-1-00000001") == Wait(WaitReason.OWNER_BLIND)
    assert isinstance(planned(SITES, view, shard=other(view)), Drain)


def other(view: View) -> str:
    desired = view.desired("example.com_ns_x", SITES)
    assert desired is not None
    return next(name for name in sorted(view.shards) if name.startswith("site-") and name != desired.shard)


def test_a_controlled_kind_that_was_added_meanwhile_waits_for_shards_that_watch_it() -> None:
    sim = LeaseSimulation(resources=TWO[:1])
    sim.join("a-00000001", member="a", works=SITES)
    sim.run(5)
    view = sim.view()
    assert planned_child(view, name="x", parent_at="a-00000001") == Wait(WaitReason.KIND_UNWORKED)
    assert planned(SITES, view) == Assign("a-00000001"), "its parent is worked as before"
    (problem,) = view.problems
    assert "lacks configmaps" in problem.problem
    assert "roll the replicas" in problem.remedy
    sim.release("a-00000001")
    sim.join("a-00000002", member="a", works=f"{SITES},{MAPS}")
    sim.run(5)
    assert sim.view().problems == ()
    assert planned_child(sim.view(), name="x", parent_at="a-00000002") == Assign("a-00000002")


def test_the_place_of_a_dead_life_is_still_for_what_it_worked() -> None:
    sim = two_controllers()
    sim.kill("site-1-00000001")
    while sim.state("site-1-00000001") is not ShardState.DEAD:
        sim.run(0.5)
    view = sim.view()
    assert view.places["site-1"].shard is None
    assert sorted(weights(view, BASES)) == ["base-0", "base-1", "base-2"]
    assert "site-1" in weights(view, SITES)


def test_a_next_life_that_works_other_kinds_takes_its_place_to_their_ring() -> None:
    sim = two_controllers()
    sim.join("site-1-00000002", member="site-1", works=BASES)
    sim.run(5)
    assert "site-1" in weights(sim.view(), BASES)
    assert "site-1" not in weights(sim.view(), SITES)


def weights(view: View, kind: str) -> list[str]:
    ring = view.rings[kind]
    assert ring is not None
    return list(ring.weights)


@pytest.mark.parametrize("written", ["", ",", " , ,", " "])
def test_a_list_of_kinds_that_names_none_is_as_if_it_were_not_there(written: str) -> None:
    sim = LeaseSimulation(resources=TWO)
    sim.join("a-00000001", member="a", works=written or ",")
    sim.run(5)
    assert sim.view().shards["a-00000001"].resources is None
    assert sim.view().rings == {}


def test_a_sharder_that_starts_builds_the_same_rings() -> None:
    sim = two_controllers()
    before = sim.view().rings
    sim.machine = Membership(sim.spec)
    sim.run(5)
    assert sim.view().rings == before
