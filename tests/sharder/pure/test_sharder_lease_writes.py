"""The Leases that the sharder writes."""

from __future__ import annotations

from kubeio.models import Lease, LeaseSpec, Meta
from sharder.membership.lease_writes import cleared, marked, taken, tombstone
from sharder.membership.shards import Holding, ShardState, holding_of, read_lease
from tests.sharder.pure.lease_simulation import WALL, make_spec

KEYS = make_spec().keys


def held() -> Lease:
    meta = Meta(
        name="a-1",
        namespace="ns",
        resource_version="7",
        labels={KEYS.ring_label: "r", "team": "x"},
        annotations={KEYS.member: "a", KEYS.protocol: "v1"},
    )
    return Lease(meta, LeaseSpec("a-1", 15, "then", "then", 4))


def test_a_take_changes_hands_and_keeps_everything_else() -> None:
    lease = taken(held(), identity="s1", contested=False, keys=KEYS, wall=WALL)
    assert lease.spec.holder_identity == "sharder:s1"
    assert (lease.spec.lease_transitions, lease.spec.lease_duration_seconds) == (5, 15)
    assert lease.metadata.resource_version == "7"
    assert lease.metadata.labels == {KEYS.ring_label: "r", "team": "x", KEYS.state: "dead"}
    assert lease.metadata.annotations == held().metadata.annotations


def test_a_contested_take_says_so_in_the_same_write() -> None:
    lease = taken(held(), identity="s1", contested=True, keys=KEYS, wall=WALL)
    assert KEYS.contested in lease.metadata.annotations
    assert read_lease(lease, keys=KEYS, max_duration_s=60).contested


def test_a_take_leaves_the_judged_version_as_it_was() -> None:
    before = held()
    taken(before, identity="s1", contested=True, keys=KEYS, wall=WALL)
    assert before == held()


def test_a_sharder_that_is_called_like_a_shard_still_takes() -> None:
    lease = taken(held(), identity="a-1", contested=False, keys=KEYS, wall=WALL)
    assert holding_of(lease) is Holding.TAKEN


def test_a_tombstone_is_a_contested_lease_held_by_the_sharder() -> None:
    lease = tombstone("x-1", member="x", namespace="ns", duration_s=14.2, identity="s1", keys=KEYS, wall=WALL)
    facts = read_lease(lease, keys=KEYS, max_duration_s=60)
    assert (facts.holding, facts.contested, facts.member, facts.duration_s) == (Holding.TAKEN, True, "x", 15)
    assert lease.metadata.labels[KEYS.ring_label] == "r"
    assert lease.spec.renew_time == "2026-01-01T00:00:00.000000Z"


def test_clearing_removes_the_annotation_and_nothing_else() -> None:
    contested = taken(held(), identity="s1", contested=True, keys=KEYS, wall=WALL)
    lease = cleared(contested, keys=KEYS)
    assert lease.metadata.annotations == held().metadata.annotations
    assert lease.spec == contested.spec


def test_marking_changes_one_label() -> None:
    lease = marked(held(), state=ShardState.EXPIRED, keys=KEYS)
    assert lease.metadata.labels == {**held().metadata.labels, KEYS.state: "expired"}
    assert lease.spec == held().spec
