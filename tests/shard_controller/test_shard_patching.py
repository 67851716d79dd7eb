"""From what is to what should be, as a JSON Patch; and the fence in front of it."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import jsonpatch
from hypothesis import given, settings

from kubeio.clock import ManualClock
from kubeio.models import Meta
from kubeio.patch import JsonPatch
from kubeio.protocol import RingKeys
from kubeio.shard.lease_validity import LeaseValidity
from shard_controller.objects.patching import WHOLE, extend, without_none
from shard_controller.shard.ownership import ExclusiveOwnership, ShardOwnership

KEYS = RingKeys("websites")
META = Meta(name="blog", uid="u-1", resource_version="7", labels={KEYS.shard: "a-1"})

leaves = st.one_of(st.integers(0, 3), st.text("ab/~", max_size=3), st.lists(st.integers(0, 2), max_size=2))
maps = st.recursive(
    st.dictionaries(st.text("ab/~", max_size=2), leaves, max_size=3),
    lambda inner: st.dictionaries(st.text("ab/~", max_size=2), st.one_of(leaves, inner), max_size=3),
    max_leaves=8,
)


def patched(current: object, patch: JsonPatch) -> object:
    return jsonpatch.apply_patch(current, json.loads(patch.encode()))


def merged(current: object, wanted: object) -> object:
    """The plain meaning of "bring wanted into current"."""
    if not isinstance(current, dict) or not isinstance(wanted, dict):
        return without_none(wanted)
    result = dict(current)
    for name, value in wanted.items():
        result[name] = merged(current.get(name), value)
    return result


@settings(deadline=None)
@given(maps, maps)
def test_the_patch_brings_what_is_wanted_and_leaves_the_rest(
    current: dict[str, object], wanted: dict[str, object]
) -> None:
    assert patched(current, extend(JsonPatch(), current, wanted)) == merged(current, wanted)


@settings(deadline=None)
@given(maps, maps)
def test_what_is_there_needs_no_operation(current: dict[str, object], wanted: dict[str, object]) -> None:
    there = patched(current, extend(JsonPatch(), current, wanted))
    assert isinstance(there, dict)
    assert extend(JsonPatch(), there, wanted) == JsonPatch()


def test_none_removes_and_asks_nothing_where_there_is_nothing() -> None:
    assert patched({"a": 1, "b": 2}, extend(JsonPatch(), {"a": 1, "b": 2}, {"a": None})) == {"b": 2}
    assert extend(JsonPatch(), {"b": 2}, {"a": None}) == JsonPatch()


def test_a_data_map_is_replaced_as_a_whole() -> None:
    current = {"data": {"old": "x"}, "metadata": {"labels": {"theirs": "1"}}}
    wanted = {"data": {"new": "y"}, "metadata": {"labels": {"ours": "2"}}}
    assert patched(current, extend(JsonPatch(), current, wanted, whole=WHOLE)) == {
        "data": {"new": "y"},
        "metadata": {"labels": {"theirs": "1", "ours": "2"}},
    }


def owned_by(shard: str) -> ShardOwnership:
    return ShardOwnership(KEYS, shard, validity=LeaseValidity(duration_s=15, sent_at=0), clock=ManualClock())


def test_the_fence_tests_label_and_uid() -> None:
    ownership = owned_by("a-1")
    assert json.loads(ownership.fence(META).encode()) == [
        {"op": "test", "path": "/metadata/labels/shard.ringleader.dev~1websites", "value": "a-1"},
        {"op": "test", "path": "/metadata/uid", "value": "u-1"},
    ]
    assert ownership.may_write(META)
    assert not owned_by("b-2").may_write(META)


def test_without_a_ring_the_fence_is_the_version() -> None:
    assert json.loads(ExclusiveOwnership("a-1").fence(META).encode()) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/metadata/uid", "value": "u-1"},
    ]
