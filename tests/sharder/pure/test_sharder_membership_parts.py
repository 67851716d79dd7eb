"""The parts of membership that are notions of their own, each by itself: decisions, unknown names, rings, problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeio.models import GroupResource, Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from sharder.errors import FieldProblem
from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.hash_rings import BUILT_AT_ONCE, RingBuilder
from sharder.membership.lease_decisions import decide_lease, lease_deadlines
from sharder.membership.places import Place
from sharder.membership.problems import lease_problems
from sharder.membership.shards import Shard, ShardState, first_seen, read_lease, without_lease
from sharder.membership.unknown_names import MAX_UNKNOWN_NAMES, UnknownNames
from sharder.membership.view import Desired, ViewVersions
from sharder.ringspec.spec import RingResource
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import make_view

KEYS = RingKeys("r")
SPEC = make_spec()
NAME = "m-00000001"


def shard(*, name: str = NAME, holder: str = NAME, contested: bool = False, resources: str = "") -> Shard:
    """The shard of a Lease first seen at 100, marked as its state is."""
    state = "contested" if contested else {"": "released", name: "ready"}.get(holder, "dead")
    notes = {KEYS.duration: "15", KEYS.protocol: "v1", KEYS.resources: resources}
    if contested:
        notes[KEYS.contested] = "x"
    meta = Meta(name=name, resource_version="7", labels={KEYS.state: state}, annotations=notes)
    lease = Lease(meta, LeaseSpec(holder, 15, renew_time="2026-01-01T00:00:00Z"))
    return first_seen(read_lease(lease, keys=KEYS, max_duration_s=60), lease, at=100)


def decide(shard: Shard, *, at: float = 100, **flags: bool) -> Intent | None:
    is_set: dict[str, Any] = {"is_failing": False, "is_hold_over": False, "is_forced": False, **flags}
    return decide_lease(shard, SPEC, at=at, fresh_at=at, longest_s=60, **is_set)


DEAD, CONTESTED = shard(holder="sharder:x"), shard(holder="sharder:x", contested=True)


@pytest.mark.parametrize(
    ("known", "at", "flags", "decided"),
    [
        (shard(), 114, {}, None),
        (shard(), 115, {}, MarkState),
        (shard(), 130, {}, Take),
        (shard(), 130, {"is_failing": True}, MarkState),
        (shard(), 145, {"is_failing": True}, Take),
        (shard(), 100, {"is_forced": True}, Take),
        (shard(holder=""), 100, {}, None),
        (shard(holder=""), 100, {"is_hold_over": True}, Take),
        (CONTESTED, 159, {}, None),
        (CONTESTED, 160, {}, ClearContested),
        (DEAD, 159, {"is_forced": True}, None),
        (DEAD, 160, {}, NeedOrphanCheck),
        (replace(DEAD, carried_at=150), 209, {}, None),
        (replace(DEAD, is_orphaned=True), 101, {}, DeleteOrphan),
        (without_lease(NAME, at=100, max_duration_s=60), 100, {}, CreateTombstone),
    ],
)
def test_the_decision_about_one_lease(
    known: Shard, at: float, flags: dict[str, bool], decided: type | None
) -> None:
    assert isinstance(decide(known, at=at, **flags), decided or type(None))


def test_a_decision_changes_at_its_deadline() -> None:
    for known in (DEAD, CONTESTED):
        (deadline,) = lease_deadlines(known, SPEC, longest_s=60)
        assert decide(known, at=deadline) != decide(known, at=deadline - 0.1)
    assert list(lease_deadlines(shard(), SPEC, longest_s=60)) == [115, 130, 145]


def test_a_name_that_lives_again_is_no_orphan_when_it_dies_once_more() -> None:
    found = replace(DEAD, is_orphaned=True)
    again = shard().lease
    assert again is not None
    facts = read_lease(again, keys=KEYS, max_duration_s=60)
    assert not found.seen_again(facts, again, at=200).is_orphaned


def test_a_foreign_name_is_known_as_long_as_objects_are_reported_with_it() -> None:
    names = UnknownNames()
    names.note_foreign("x", at=0)
    assert names.is_foreign("x", at=500)
    names.advance({}, fresh_at=1000, now=1000)
    assert names.foreign == {"x"}
    names.advance({}, fresh_at=1100, now=1100)
    assert not names.foreign


def test_names_under_care_take_the_place_of_others() -> None:
    names = UnknownNames()
    under_care = {
        f"x{i}": without_lease(f"x{i}", at=0, max_duration_s=60) for i in range(MAX_UNKNOWN_NAMES - 1)
    }
    names.advance(under_care, fresh_at=1, now=1)
    assert [names.admit(name, at=1) for name in ("a", "b")] == [True, False]
    assert names.deferred == 1
    names.advance({}, fresh_at=70, now=70)
    assert names.deferred == 0
    assert names.admit("b", at=70)


def test_a_refusal_is_forgotten_with_the_wish_for_a_tombstone() -> None:
    names = UnknownNames()
    names.refuse("x", why="a policy")
    names.advance({"x": without_lease("x", at=0, max_duration_s=60)}, fresh_at=1, now=1)
    assert "a policy" in str(names.refused["x"])
    names.advance({"x": shard(name="x", holder="sharder:x")}, fresh_at=1, now=1)
    assert not names.refused


def test_large_rings_are_wanted_until_they_are_built_and_the_last_ones_go_on() -> None:
    builder = RingBuilder(builds_elsewhere=True)
    spec = make_spec(virtual_nodes=100)
    builder.follow([Place("a", 1.0, "a-1")], spec)
    small = builder.whole
    assert small is not None
    heavy = [Place("a", 1.0, "a-1"), Place("b", BUILT_AT_ONCE / 100, "b-1")]
    builder.follow(heavy, spec)
    wanted = builder.wanted
    assert wanted is not None
    assert builder.whole is small
    builder.note_built(wanted, FieldProblem("spec.eps", 0, "is refused", "raise it"))
    assert (builder.whole, builder.wanted) == (small, None)
    assert builder.problem is not None
    builder.follow(heavy, spec)
    assert builder.wanted is None, "the same inputs have the same result"


def test_no_member_gets_objects_that_it_does_not_work_while_the_rings_are_built() -> None:
    """A resource joins the ring, or a member's next shard works less: the last rings would give it away."""
    sites, pages = (RingResource(GroupResource("example.com", name)) for name in ("websites", "pages"))
    all_of_it = frozenset({"websites.example.com", "pages.example.com"})
    some = frozenset({"websites.example.com"})
    builder = RingBuilder(builds_elsewhere=True)

    def follow(of_b: frozenset[str], *resources: RingResource, is_built: bool = False) -> None:
        heavy = [Place(name, BUILT_AT_ONCE / 200, f"{name}-1", resources=all_of_it) for name in ("a", "c")]
        places = [*heavy, Place("b", 1.0, "b-1", resources=of_b)]
        builder.follow(places, make_spec(virtual_nodes=100, resources=resources))
        if is_built and builder.wanted is not None:
            builder.note_built(builder.wanted, builder.wanted.make())

    follow(some, sites, is_built=True)
    assert builder.apart == {}
    follow(some, sites, pages)
    assert builder.apart == {"pages.example.com": None}, "b is on the ring of all, and works no pages"
    follow(some, sites)
    assert builder.apart == {}, "as before"
    follow(some, sites, pages, is_built=True)
    ring = builder.apart["pages.example.com"]
    assert ring is not None
    assert ring.members == ("a", "c")
    follow(all_of_it, sites, pages, is_built=True)
    assert builder.apart == {}
    follow(some, sites, pages)
    assert builder.apart == {"pages.example.com": None}


def test_a_resource_that_joined_the_ring_after_the_view_has_no_owner_in_it() -> None:
    view = replace(make_view({"a-1": ShardState.READY}, {"a": "a-1"}), mains=("websites.example.com",))
    assert view.desired("key", "websites.example.com") == Desired("a", "a-1")
    assert view.desired("key", "pages.example.com") is None
    versions = ViewVersions()
    before = versions.numbered(view)
    after = versions.numbered(replace(view, mains=("websites.example.com", "pages.example.com")))
    assert after.desired("key", "pages.example.com") == Desired("a", "a-1")
    assert (after.version, after.ring_version) > (before.version, before.ring_version)


def test_problems_come_by_kind_and_then_by_name() -> None:
    sites, pages = GroupResource("example.com", "websites"), GroupResource("", "configmaps")
    spec = make_spec(resources=(RingResource(sites, (pages,)),))
    bad = FieldProblem("leases/X", "X", "is no name", "rename it")
    no = FieldProblem("leases/n", "n", "is refused", "allow it")
    shards = [shard(name=name, holder=name, resources=str(sites)) for name in ("z", "y")]
    found = lease_problems(shards, misnamed={"X": (bad,)}, refused={"n": no}, spec=spec)
    assert found[:2] == (bad, no)
    assert [problem.field.partition(".")[0] for problem in found[2:]] == ["leases/y", "leases/z"]
    assert "lacks configmaps" in found[2].problem
