"""Patches: the vectors of RFC 7396, the real server's reading of RFC 6902, lists of strategic patches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from devcluster.embedded.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, apply_patch
from devcluster.embedded.status import Refusal
from kubeio.patch import merged

RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7396, ids=str)
def test_merge_patch_does_what_the_rfc_says(target: Any, patch: Any, expected: Any) -> None:
    assert merged(target, patch) == expected


def patched(doc: dict[str, Any], *operations: dict[str, Any]) -> dict[str, Any]:
    return apply_patch(JSON_PATCH, msgspec.json.encode(operations), doc, strategic=False)


def owned(shard: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"shard.ringleader.dev/demo": shard}, "uid": "u1"},
        "spec": {"list": [1, 2]},
    }


POINTER = "/metadata/labels/shard.ringleader.dev~1demo"


def test_fence_lets_the_owner_through_and_nobody_else() -> None:
    test = {"op": "test", "path": POINTER, "value": "shard-a"}
    write = {"op": "add", "path": "/spec/html", "value": "x"}
    assert patched(owned("shard-a"), test, write)["spec"]["html"] == "x"
    with pytest.raises(Refusal) as refused:
        patched(owned("shard-b"), test, write)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/metadata/labels/absent"},
        {"op": "test", "path": "/metadata/labels/absent", "value": "x"},
        {"op": "add", "path": "/no/such/parent", "value": "x"},
        {"op": "replace", "path": "/spec/list/7", "value": 1},
        {"op": "replace", "path": "/spec/html"},
        {"op": "jump", "path": "/spec"},
        {"path": "/spec"},
        {"op": "move", "from": "/absent", "path": "/spec/x"},
    ],
    ids=str,
)
def test_operation_that_does_not_fit_is_422(operation: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        patched(owned("shard-a"), operation)
    assert refused.value.code == 422


def test_replace_of_a_missing_key_adds_it_like_the_real_server_does() -> None:
    assert patched(owned("a"), {"op": "replace", "path": "/spec/html", "value": "x"})["spec"]["html"] == "x"


def test_operations_on_lists_and_moves_work() -> None:
    doc = patched(
        owned("a"),
        {"op": "add", "path": "/spec/list/-", "value": 3},
        {"op": "copy", "from": "/spec/list", "path": "/spec/copy"},
        {"op": "move", "from": "/spec/list", "path": "/spec/moved"},
        {"op": "replace", "path": "/spec/moved/0", "value": 0},
    )
    assert doc["spec"] == {"copy": [1, 2, 3], "moved": [0, 2, 3]}


@pytest.mark.parametrize("body", [b"{", b'{"op":"test"}', b"[1]"])
def test_patch_that_is_no_patch_is_400(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        apply_patch(JSON_PATCH, body, {}, strategic=False)
    assert refused.value.code == 400


def test_strategic_patch_merges_finalizers_and_owners_and_replaces_other_lists() -> None:
    doc = {
        "metadata": {
            "finalizers": ["a"],
            "ownerReferences": [{"uid": "u1", "name": "x"}, {"uid": "u2", "name": "y"}],
        },
        "list": [1],
    }
    patch = {
        "metadata": {
            "finalizers": ["a", "b"],
            "ownerReferences": [{"uid": "u2", "controller": True}, {"$patch": "delete", "uid": "u1"}],
        },
        "list": [2],
    }
    assert apply_patch(STRATEGIC_PATCH, msgspec.json.encode(patch), doc, strategic=True) == {
        "metadata": {
            "finalizers": ["a", "b"],
            "ownerReferences": [{"uid": "u2", "name": "y", "controller": True}],
        },
        "list": [2],
    }


def test_strategic_patch_of_a_custom_resource_is_415_and_names_what_is_served() -> None:
    with pytest.raises(Refusal, match="application/merge-patch") as refused:
        apply_patch(STRATEGIC_PATCH, b"{}", {}, strategic=False)
    assert refused.value.code == 415


def test_merge_patch_must_leave_an_object() -> None:
    with pytest.raises(Refusal) as refused:
        apply_patch(MERGE_PATCH, b"[]", {}, strategic=False)
    assert refused.value.code == 400
