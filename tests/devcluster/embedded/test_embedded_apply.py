"""Server-side apply: who applied what, what goes away, who is in conflict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from devcluster.embedded.apply import applied, field_paths
from devcluster.embedded.managed_fields import ManagedFieldsEntry, decode_fields, encode_fields
from devcluster.embedded.status import Refusal, StatusSubject

SUBJECT = StatusSubject("example.com", "websites", "Website", "a")
Doc = dict[str, Any]


def put(live: Doc, spec: Doc, manager: str, *, force: bool = False) -> Doc:
    entries = (live.get("metadata") or {}).get("managedFields", ())
    own = ManagedFieldsEntry(manager, "Apply", "example.com/v1", "2026-01-01T00:00:00Z")
    doc, entries = applied(live, {"spec": spec}, entries, own, force=force, subject=SUBJECT)
    doc.setdefault("metadata", {})["managedFields"] = entries
    return doc


def test_field_that_its_only_applier_leaves_out_goes_away() -> None:
    live = put({"spec": {"foreign": 1}}, {"a": 1, "b": {"c": 2}}, "me")
    assert put(live, {"a": 1}, "me")["spec"] == {"foreign": 1, "a": 1}


def test_field_of_two_appliers_stays_until_both_left_it_out() -> None:
    live = put(put({}, {"a": 1, "b": 1}, "me"), {"a": 1}, "other")
    live = put(live, {"b": 1}, "me")
    assert live["spec"] == {"a": 1, "b": 1}
    assert put(live, {}, "other")["spec"] == {"b": 1}


def test_other_value_for_an_appliers_field_is_a_conflict_that_names_both() -> None:
    live = put({}, {"a": 1, "list": [1]}, "me")
    with pytest.raises(Refusal, match=r'conflict with "me".*: \.spec\.a') as refused:
        put(live, {"a": 2}, "other")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")


def test_force_takes_the_field_over() -> None:
    live = put(put({}, {"a": 1, "b": 1}, "me"), {"a": 2}, "other", force=True)
    assert live["spec"] == {"a": 2, "b": 1}
    owners = {
        entry.manager: msgspec.json.decode(entry.fields_v1) for entry in live["metadata"]["managedFields"]
    }
    assert owners == {"me": {"f:spec": {"f:b": {}}}, "other": {"f:spec": {"f:a": {}}}}


def test_apply_that_changes_nothing_leaves_everything_as_it_is() -> None:
    live = put({}, {"a": {"b": [1, {"c": 2}]}}, "me")
    assert put(live, {"a": {"b": [1, {"c": 2}]}}, "me") == live


def test_identity_belongs_to_nobody_and_labels_do() -> None:
    doc = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "uid": "u", "labels": {"k/x": "v"}}}
    paths = field_paths(doc)
    assert paths == {("f:metadata", "f:labels", "f:k/x")}
    assert decode_fields(encode_fields(paths)) == paths
