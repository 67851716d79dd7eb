"""Each decision is one patch, and each patch is safe to send late: carried out here by the library that the
embedded API server uses."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest

from kubeio.models import Meta
from kubeio.patch import JsonPatch, MergePatch, Patch
from sharder.planning.decisions import Assign, Drain, ObjectWrite, ReleaseDrain, Strip, UpdateDrain
from sharder.planning.patches import patch_of
from tests.sharder.pure.views import KEYS, make_meta

ALL: list[ObjectWrite] = [
    Assign("b-1", was="a-1"),
    Strip(),
    Drain("a-1", "b-1"),
    UpdateDrain("a-1", "b-1", was="c-1"),
    ReleaseDrain("a-1"),
]


def document(meta: Meta) -> dict[str, Any]:
    identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"metadata": {**identity, "labels": {**meta.labels, "app": "shop"}}}


def applied(patch: Patch, to: dict[str, Any]) -> dict[str, str] | None:
    """Labels after *patch*, None if the server would refuse it."""
    target = copy.deepcopy(to)
    if isinstance(patch, JsonPatch):
        try:
            changed: dict[str, Any] = jsonpatch.apply_patch(target, json.loads(patch.encode()))
        except (jsonpatch.JsonPatchTestFailed, jsonpatch.JsonPatchConflict):
            return None
        return dict(changed["metadata"]["labels"])
    assert isinstance(patch, MergePatch)
    wanted = json.loads(patch.encode())["metadata"]
    labels = wanted.pop("labels")
    del wanted["annotations"]
    if any(target["metadata"][key] != value for key, value in wanted.items()):
        return None
    merged = target["metadata"]["labels"] | labels
    return {key: value for key, value in merged.items() if value is not None}


@pytest.mark.parametrize(
    ("decision", "shard", "drain", "after"),
    [
        (Assign("b-1"), None, None, ("b-1", None)),
        (Assign("b-1"), None, "c-1", ("b-1", None)),
        (Assign("b-1", was="a-1"), "a-1", "c-1", ("b-1", None)),
        (Strip(), "a-1", "", (None, None)),
        (Strip(), None, "b-1", (None, None)),
        (Drain("a-1", "b-1"), "a-1", None, ("a-1", "b-1")),
        (UpdateDrain("a-1", "b-1", was="c-1"), "a-1", "c-1", ("a-1", "b-1")),
        (UpdateDrain("a-1", "b-1", was=""), "a-1", "", ("a-1", "b-1")),
        (ReleaseDrain("a-1"), "a-1", None, ("a-1", "")),
        (ReleaseDrain("a-1"), "a-1", "b-1", ("a-1", "")),
    ],
)
def test_a_decision_writes_the_two_labels_and_nothing_else(
    decision: ObjectWrite, shard: str | None, drain: str | None, after: tuple[str | None, str | None]
) -> None:
    meta = make_meta("x", shard=shard, drain=drain)
    labels = applied(patch_of(decision, meta, keys=KEYS), document(meta))
    assert labels is not None
    assert (labels.pop(KEYS.shard, None), labels.pop(KEYS.drain, None)) == after
    assert labels == {"app": "shop"}


@pytest.mark.parametrize(
    ("decision", "turn"),
    [
        (Assign("b-1"), {KEYS.turn: "7"}),
        (Assign("b-1", was="a-1"), {KEYS.turn: "7"}),
        (Strip(), {KEYS.turn: None}),
        *[(request, None) for request in ALL[2:]],
    ],
)
def test_who_gets_an_object_gets_the_version_that_was_tested_as_its_turn(
    decision: ObjectWrite, turn: dict[str, str | None] | None
) -> None:
    meta = make_meta("x", shard="a-1", drain="c-1")
    patch = patch_of(decision, meta, keys=KEYS)
    written = json.loads(patch.encode())
    assert (written["metadata"]["annotations"] if isinstance(patch, MergePatch) else None) == turn


@pytest.mark.parametrize("decision", ALL, ids=lambda decision: type(decision).__name__)
def test_no_patch_reaches_an_object_created_again_under_the_same_name(decision: ObjectWrite) -> None:
    meta = make_meta("x", shard="a-1", drain="c-1")
    again = document(meta)
    again["metadata"]["uid"] = "another"
    assert applied(patch_of(decision, meta, keys=KEYS), again) is None


@pytest.mark.parametrize("decision", ALL[:2], ids=lambda decision: type(decision).__name__)
def test_what_takes_an_owner_away_applies_to_the_judged_version_only(decision: ObjectWrite) -> None:
    meta = make_meta("x", shard="a-1", drain="c-1")
    later = document(meta)
    later["metadata"]["resourceVersion"] = "8"
    assert applied(patch_of(decision, meta, keys=KEYS), later) is None


@pytest.mark.parametrize("decision", ALL[2:], ids=lambda decision: type(decision).__name__)
def test_a_request_reaches_the_owner_it_was_meant_for_at_any_later_version(decision: ObjectWrite) -> None:
    meta = make_meta("x", shard="a-1", drain="c-1")
    later = document(meta)
    later["metadata"]["resourceVersion"] = "8"
    assert applied(patch_of(decision, meta, keys=KEYS), later) is not None
    later["metadata"]["labels"][KEYS.shard] = "z-1"
    assert applied(patch_of(decision, meta, keys=KEYS), later) is None
    del later["metadata"]["labels"][KEYS.shard]
    assert applied(patch_of(decision, meta, keys=KEYS), later) is None


def test_a_request_is_repointed_only_if_it_was_not_meanwhile() -> None:
    meta = make_meta("x", shard="a-1", drain="c-1")
    later = document(meta)
    later["metadata"]["labels"][KEYS.drain] = "d-1"
    assert applied(patch_of(UpdateDrain("a-1", "b-1", was="c-1"), meta, keys=KEYS), later) is None
