"""Structural schemas of custom resources: what is dropped, what is filled in, what is refused. Pure.

Validation itself is jsonschema-rs; pruning, defaulting and the `x-kubernetes-*` extensions are ours. CEL rules
(`x-kubernetes-validations`) are stored and not evaluated; `Schema.rules` has their paths, for a warning.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import jsonschema_rs

from devcluster.embedded.status import Cause

_UNSERVED: Final = ("$ref", "definitions", "dependencies", "id", "patternProperties", "additionalItems")
_STRUCTURE: Final = {
    "default",
    "example",
    "externalDocs",
    "title",
    "description",
    "nullable",
}
_ROOT_KEYS: Final = frozenset({"apiVersion", "kind", "metadata"})


class SchemaError(Exception):
    """A schema that cannot be used; `causes` name the paths."""

    def __init__(self, causes: list[Cause]) -> None:
        super().__init__("; ".join(f"{cause.field}: {cause.message}" for cause in causes))
        self.causes = causes


class Schema:
    """One version's schema, compiled: `Schema(openAPIV3Schema, where="spec.versions[0].schema")`."""

    __slots__ = ("_node", "_validator", "rules", "source")

    def __init__(self, source: dict[str, Any], *, where: str) -> None:
        causes: list[Cause] = []
        if source.get("type") != "object":
            causes.append(Cause(f"{where}.type", "must be object at the root", "FieldValueRequired"))
        self.source: Final = source
        self.rules: Final[list[str]] = []
        """Paths of rules in CEL, which are not evaluated."""
        self._node = _Node(source, where, causes, self.rules, root=True)
        if causes:
            raise SchemaError(causes)
        try:
            self._validator = jsonschema_rs.Draft7Validator(_plain(source), validate_formats=True)
        except ValueError as error:
            raise SchemaError([Cause(where, str(error))]) from error

    def prune(self, doc: dict[str, Any]) -> list[str]:
        """Remove what the schema does not know; the removed paths."""
        dropped: list[str] = []
        self._node.prune(doc, "", dropped)
        return dropped

    def default(self, doc: dict[str, Any]) -> None:
        """Fill in defaults, in place."""
        self._node.default_in(doc)

    def errors(self, doc: dict[str, Any]) -> list[Cause]:
        """Everything wrong with *doc*; empty when it may be stored."""
        if self._validator.is_valid(doc):
            return []
        return [cause for error in self._validator.iter_errors(doc) for cause in _causes(error)]


class _Node:
    """One level of a structural schema."""

    __slots__ = (
        "additional",
        "default",
        "embedded",
        "has_default",
        "items",
        "nullable",
        "preserve",
        "properties",
    )

    def __init__(
        self, schema: dict[str, Any], where: str, causes: list[Cause], rules: list[str], *, root: bool = False
    ) -> None:
        _check(schema, where, causes)
        if schema.get("x-kubernetes-validations"):
            rules.append(f"{where}.x-kubernetes-validations")
        self.properties: dict[str, _Node] = {
            name: _Node(child, f"{where}.properties[{name}]", causes, rules)
            for name, child in (schema.get("properties") or {}).items()
        }
        additional = schema.get("additionalProperties")
        self.additional: _Node | None = (
            _Node(additional, f"{where}.additionalProperties", causes, rules)
            if isinstance(additional, dict)
            else None
        )
        items = schema.get("items")
        self.items = _Node(items, f"{where}.items", causes, rules) if isinstance(items, dict) else None
        self.embedded = bool(schema.get("x-kubernetes-embedded-resource")) or root
        self.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
        self.nullable = bool(schema.get("nullable"))
        self.has_default = "default" in schema
        self.default = schema.get("default")

    def prune(self, value: Any, path: str, dropped: list[str]) -> None:
        if isinstance(value, list):
            if self.items is not None:
                for at, item in enumerate(value):
                    self.items.prune(item, f"{path}[{at}]", dropped)
            return
        if not isinstance(value, dict):
            return
        for name in list(value):
            child = self.properties.get(name) or self.additional
            where = f"{path}.{name}" if path else name
            if self.embedded and name in _ROOT_KEYS:
                continue
            if child is not None:
                child.prune(value[name], where, dropped)
            elif not self.preserve:
                del value[name]
                dropped.append(where)

    def default_in(self, value: Any) -> None:
        if isinstance(value, list):
            if self.items is not None:
                for item in value:
                    self.items.default_in(item)
            return
        if not isinstance(value, dict):
            return
        for name, child in self.properties.items():
            if not child.nullable and name in value and value[name] is None:
                del value[name]
            if child.has_default and name not in value:
                value[name] = copy.deepcopy(child.default)
            if name in value:
                child.default_in(value[name])
        if self.additional is not None:
            for name in value.keys() - self.properties.keys():
                self.additional.default_in(value[name])


def _check(schema: dict[str, Any], where: str, causes: list[Cause]) -> None:
    causes.extend(
        Cause(f"{where}.{key}", "not allowed in a structural schema", "FieldValueForbidden")
        for key in _UNSERVED
        if schema.get(key)
    )
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        causes.append(
            Cause(f"{where}.type", "must not be empty for specified object fields", "FieldValueRequired")
        )
    if schema.get("properties") and schema.get("additionalProperties"):
        causes.append(
            Cause(
                f"{where}.additionalProperties",
                "additionalProperties and properties are mutual exclusive",
                "FieldValueForbidden",
            )
        )


def _plain(schema: Any) -> Any:
    """*schema* as JSON Schema: nullable and int-or-string spelt out; sub-schemas rewritten."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _STRUCTURE or key.startswith("x-kubernetes-"):
            continue
        if key == "properties":
            plain[key] = {name: _plain(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"):
            plain[key] = _plain(value)
        else:
            plain[key] = value
    _spell_out_bounds(schema, plain)
    if schema.get("x-kubernetes-int-or-string"):
        plain.pop("anyOf", None)
        plain["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in plain:
        types = plain["type"] if isinstance(plain["type"], list) else [plain["type"]]
        plain["type"] = [*types, "null"]
        if "enum" in plain:
            plain["enum"] = [*plain["enum"], None]
    return plain


def _spell_out_bounds(schema: dict[str, Any], plain: dict[str, Any]) -> None:
    """OpenAPI's boolean exclusiveMinimum and exclusiveMaximum as the numbers of later drafts."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool):
            plain.pop(exclusive)
            if schema[exclusive] and bound in plain:
                plain[exclusive] = plain.pop(bound)


def _causes(error: Any) -> list[Cause]:
    """One violation, worded as on the real server."""
    path = field_path(error.instance_path)
    kind, found = error.kind, error.instance
    match kind.name:
        case "required":
            name = f"{path}.{kind.property}" if path else kind.property
            return [Cause(name, "", "FieldValueRequired")]
        case "enum":
            served = ", ".join(_quoted(option) for option in kind.options)
            return [Cause(path, f"{_quoted(found)}: supported values: {served}", "FieldValueNotSupported")]
        case "type":
            message = f"{_type(found)}: {path} in body must be of type {','.join(kind.types)}: {_type(found)}"
            return [Cause(path, message, "FieldValueTypeInvalid")]
        case "maxItems":
            return [Cause(path, f"{len(found)}: must have at most {kind.limit} items", "FieldValueTooMany")]
        case "maxProperties":
            return [Cause(path, f"{len(found)}: must have at most {kind.limit} items", "FieldValueTooMany")]
        case "maxLength":
            return [Cause(path, f"may not be more than {kind.limit} bytes", "FieldValueTooLong")]
    return [Cause(path or "<root>", f"{_quoted(found)}: {path} in body {_should(kind, error.message)}")]


def _should(kind: Any, message: str) -> str:
    match kind.name:
        case "minLength":
            return f"should be at least {kind.limit} chars long"
        case "minimum":
            return f"should be greater than or equal to {kind.limit}"
        case "exclusiveMinimum":
            return f"should be greater than {kind.limit}"
        case "maximum":
            return f"should be less than or equal to {kind.limit}"
        case "exclusiveMaximum":
            return f"should be less than {kind.limit}"
        case "minItems":
            return f"should have at least {kind.limit} items"
        case "pattern":
            return f"should match '{kind.pattern}'"
        case "format":
            return f"must be of type {kind.format}"
        case "multipleOf":
            return f"should be a multiple of {kind.multiple_of}"
    return str(message)


def field_path(parts: list[str | int]) -> str:
    """`["spec", "rules", 0, "host"]` as `spec.rules[0].host`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _quoted(value: object) -> str:
    match value:
        case str():
            return f'"{value if len(value) <= 200 else value[:200] + "..."}"'
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    return _type(value)


def _type(value: object) -> str:
    match value:
        case None:
            return '"null"'
        case bool():
            return '"boolean"'
        case int():
            return '"integer"'
        case float():
            return '"number"'
        case str():
            return '"string"'
        case list():
            return '"array"'
    return '"object"'
