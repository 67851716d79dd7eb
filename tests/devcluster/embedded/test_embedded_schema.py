"""Structural schemas: pruning, defaults, extensions; and rules in CEL, which are found."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.embedded.schema import Schema, SchemaError

WHERE = "spec.versions[0].schema.openAPIV3Schema"


def schema(spec: dict[str, Any]) -> Schema:
    return Schema({"type": "object", "properties": {"spec": spec}}, where=WHERE)


def test_rules_in_cel_are_found_wherever_they_are() -> None:
    rule = [{"rule": "self.size() > 0"}]
    html = {"type": "string", "x-kubernetes-validations": rule}
    many = {"type": "array", "items": html}
    found = schema({"type": "object", "x-kubernetes-validations": rule, "properties": {"many": many}}).rules
    spec = f"{WHERE}.properties[spec]"
    assert found == [
        f"{spec}.x-kubernetes-validations",
        f"{spec}.properties[many].items.x-kubernetes-validations",
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#/x", "type": "object"},
        {"description": "no type"},
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        },
        {"type": "string", "pattern": "("},
    ],
    ids=str,
)
def test_schema_that_is_not_structural_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        schema(part)


def test_unknown_fields_are_dropped_and_named_except_where_they_are_kept() -> None:
    compiled = schema(
        {
            "type": "object",
            "properties": {
                "known": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "rows": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                },
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
            },
        }
    )
    doc = {
        "metadata": {"anything": 1},
        "extra": 1,
        "spec": {
            "known": "x",
            "other": 1,
            "free": {"a": {"b": 1}},
            "rows": [{"a": "x", "z": 1}],
            "map": {"k": {"gone": 1}},
        },
    }
    assert compiled.prune(doc) == ["extra", "spec.other", "spec.rows[0].z", "spec.map.k.gone"]
    assert doc == {
        "metadata": {"anything": 1},
        "spec": {"known": "x", "free": {"a": {"b": 1}}, "rows": [{"a": "x"}], "map": {"k": {}}},
    }


def test_defaults_fill_what_is_missing_at_every_depth_and_are_not_shared() -> None:
    compiled = schema(
        {
            "type": "object",
            "default": {},
            "properties": {
                "replicas": {"type": "integer", "default": 1},
                "tags": {"type": "array", "default": [], "items": {"type": "string"}},
                "maybe": {"type": "string", "nullable": True, "default": "x"},
            },
        }
    )
    first: dict[str, Any] = {}
    second: dict[str, Any] = {"spec": {"replicas": None, "maybe": None}}
    compiled.default(first)
    compiled.default(second)
    assert first == {"spec": {"replicas": 1, "tags": [], "maybe": "x"}}
    assert second == {"spec": {"replicas": 1, "tags": [], "maybe": None}}
    first["spec"]["tags"].append("changed")
    assert second["spec"]["tags"] == []


@pytest.mark.parametrize("value", [3, "30%", 3.0])
def test_int_or_string_takes_both(value: object) -> None:
    compiled = schema(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    )
    assert compiled.errors({"spec": value}) == []
    assert compiled.errors({"spec": True}) != []


def test_exclusive_bounds_are_booleans_as_openapi_has_them() -> None:
    compiled = schema({"type": "integer", "minimum": 3, "exclusiveMinimum": True})
    assert compiled.errors({"spec": 4}) == []
    assert [cause.message for cause in compiled.errors({"spec": 3})] == [
        "3: spec in body should be greater than 3"
    ]


def test_every_wrong_field_is_named() -> None:
    compiled = schema(
        {
            "type": "object",
            "required": ["html"],
            "properties": {"html": {"type": "string"}, "mode": {"type": "string", "enum": ["a", "b"]}},
        }
    )
    assert [(cause.field, cause.reason) for cause in compiled.errors({"spec": {"mode": "c"}})] == [
        ("spec.html", "FieldValueRequired"),
        ("spec.mode", "FieldValueNotSupported"),
    ]
