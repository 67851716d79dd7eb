"""Patches and the shard's labels: whatever a controller sends back or takes away, they stay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster.embedded.patches import apply_patch
from proxy.bodies import read_body
from proxy.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, RemovesLabels
from proxy.protobuf import Malformed
from tests.proxy.relays import LABELS, SHARD, VISIBLE

ALIAS = "alias"
SEEN = dict.fromkeys(LABELS, ALIAS)
AT_SHARD, AT_VISIBLE = (f"/metadata/labels/{key.replace('/', '~1')}" for key in (SHARD, VISIBLE))
TEMPLATE = "/spec/template/metadata/labels"


def patched(kind: str, patch: object) -> dict[str, Any]:
    """An object of the shard after *patch* of the controller."""
    content = read_body(json.dumps(patch).encode(), kind).with_labels(LABELS)
    doc = {
        "metadata": {"name": "x", "labels": {"app": "x"} | LABELS},
        "spec": {"template": {"metadata": {"labels": dict(SEEN)}}},
    }
    return apply_patch(kind, content, doc, strategic=True)


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("value", [ALIAS, None, "other"])
def test_a_merge_patch_changes_its_own_labels_only(kind: str, value: str | None) -> None:
    patch = {
        "metadata": {
            "labels": dict.fromkeys(LABELS, value) | {"new": "y", "app": None},
            "annotations": {"a": "b"},
        },
        "spec": {"template": {"metadata": {"labels": {SHARD: ALIAS, "new": "y"}}}},
    }
    found = patched(kind, patch)
    assert found["metadata"] == {"name": "x", "labels": {"new": "y"} | LABELS, "annotations": {"a": "b"}}
    assert found["spec"]["template"]["metadata"]["labels"] == SEEN | {"new": "y"}


@pytest.mark.parametrize(
    "patch", [{"metadata": None}, {"spec": {"a": 1}}, {"metadata": {"annotations": None}}]
)
def test_a_merge_patch_without_labels_is_sent_as_it_is(patch: object) -> None:
    content = json.dumps(patch).encode()
    assert read_body(content, MERGE_PATCH).with_labels(LABELS) == content


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("labels", [{}, {"labels": {"app": "y"}}])
def test_a_merge_patch_leaves_an_annotation_that_is_hidden(kind: str, labels: dict[str, Any]) -> None:
    content = json.dumps({"metadata": {"annotations": {"turn": "", "a": "b"}} | labels}).encode()
    found = json.loads(read_body(content, kind).with_labels(LABELS, {"turn": None}))
    assert found == {"metadata": {"annotations": {"a": "b"}} | labels}


def test_a_json_patch_leaves_an_annotation_that_is_hidden() -> None:
    add = [{"op": "add", "path": f"/metadata/annotations/{name}", "value": ""} for name in ("turn~1x", "a")]
    found = read_body(json.dumps(add).encode(), JSON_PATCH).with_labels(LABELS, {"turn/x": None})
    assert json.loads(found) == add[1:]


@pytest.mark.parametrize(
    "labels", [None, {"$patch": "replace", "own": "z"}, {"$patch": "replace", SHARD: ALIAS}]
)
def test_a_strategic_patch_may_replace_all_labels(labels: dict[str, str] | None) -> None:
    body = read_body(json.dumps({"metadata": {"labels": labels}}).encode(), STRATEGIC_PATCH)
    own = {"own": "z"} if labels and "own" in labels else {}
    assert json.loads(body.with_labels(LABELS)) == {
        "metadata": {"labels": {"$patch": "replace"} | own | LABELS}
    }


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (MERGE_PATCH, {"metadata": {"labels": None}}),
        (STRATEGIC_PATCH, {"metadata": {"labels": {"$patch": "delete"}}}),
        (STRATEGIC_PATCH, {"metadata": {"labels": {"$retainKeys": ["a"], "a": "b"}}}),
        (STRATEGIC_PATCH, {"metadata": {"$retainKeys": ["name"], "name": "x"}}),
        (STRATEGIC_PATCH, {"metadata": {"$patch": "replace", "name": "x"}}),
        (STRATEGIC_PATCH, {"$patch": "replace", "metadata": {"name": "x"}}),
        (JSON_PATCH, [{"op": "move", "from": AT_SHARD, "path": "/metadata/labels/a"}]),
        (JSON_PATCH, [{"op": "copy", "from": "/metadata/labels", "path": TEMPLATE}]),
        (JSON_PATCH, [{"op": "copy", "from": TEMPLATE, "path": "/metadata/labels"}]),
        (JSON_PATCH, [{"op": "move", "from": "/metadata", "path": "/spec"}]),
    ],
)
def test_what_cannot_be_done_without_a_change_of_the_labels_is_told(kind: str, patch: object) -> None:
    with pytest.raises(RemovesLabels):
        patched(kind, patch)


@pytest.mark.parametrize(
    ("operations", "labels"),
    [
        ([{"op": "test", "path": AT_SHARD, "value": ALIAS}], {"app": "x"}),
        ([{"op": "test", "path": "/metadata/labels", "value": {"app": "x"} | SEEN}], {"app": "x"}),
        ([{"op": "replace", "path": AT_SHARD, "value": ALIAS}], {"app": "x"}),
        ([{"op": "remove", "path": AT_SHARD}, {"op": "remove", "path": AT_VISIBLE}], {"app": "x"}),
        ([{"op": "add", "path": AT_VISIBLE, "value": "other"}], {"app": "x"}),
        ([{"op": "add", "path": "/metadata/labels/new", "value": "y"}], {"app": "x", "new": "y"}),
        ([{"op": "replace", "path": "/metadata/labels", "value": {"new": "y"}}], {"new": "y"}),
        ([{"op": "add", "path": "/metadata/labels", "value": SEEN}], {}),
        ([{"op": "replace", "path": "/metadata/labels", "value": None}], {}),
        ([{"op": "remove", "path": "/metadata/labels"}], {}),
        ([{"op": "replace", "path": "/metadata", "value": {"labels": SEEN | {"new": "y"}}}], {"new": "y"}),
        ([{"op": "replace", "path": "", "value": {"metadata": {"name": "x"}}}], {}),
    ],
)
def test_a_json_patch_changes_its_own_labels_only(
    operations: list[dict[str, object]], labels: dict[str, str]
) -> None:
    assert patched(JSON_PATCH, operations)["metadata"]["labels"] == labels | LABELS


def test_a_json_patch_of_a_template_keeps_the_alias() -> None:
    operations = [{"op": "add", "path": TEMPLATE, "value": SEEN | {"new": "y"}}]
    found = patched(JSON_PATCH, [{"op": "test", "path": AT_SHARD, "value": ALIAS}, *operations])
    assert found["spec"]["template"]["metadata"]["labels"] == SEEN | {"new": "y"}


def test_a_large_number_stays_what_it_is() -> None:
    body = read_body(b'{"spec":{"n":12345678901234567890123},"metadata":{"labels":{"a":"b"}}}', MERGE_PATCH)
    assert b'"n":12345678901234567890123' in body.with_labels(LABELS)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (JSON_PATCH, b"{}"),
        (JSON_PATCH, b'[{"op":"test","path":1}]'),
        (JSON_PATCH, b'[{"op":1,"path":"/metadata"}]'),
        (MERGE_PATCH, b"[]"),
        (MERGE_PATCH, b'{"metadata":[]}'),
        (STRATEGIC_PATCH, b'{"metadata":{"labels":[]}}'),
        (MERGE_PATCH, b"[" * 100_000),
        (MERGE_PATCH, b'{"metadata":{"labels":' + b"[" * 100_000),
    ],
)
def test_what_is_no_patch_is_malformed(kind: str, content: bytes) -> None:
    with pytest.raises(Malformed):
        read_body(content, kind).with_labels(LABELS)
