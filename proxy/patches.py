"""Patches that describe a change: what they do to labels that are not the controller's to change. Pure.

A controller that replaces all labels of an object, or sends back what it saw, means no handoff.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from proxy.protobuf import Malformed, ObjectHead

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
PATCHES: Final = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH})

_LABELS: Final = ("metadata", "labels")
_ANNOTATIONS: Final = "annotations"
_DIRECTIVE: Final = "$patch"
_DIRECTIVES: Final = (_DIRECTIVE, "$retainKeys")
"""Keys of strategic merge patches that take away what they do not name."""


class RemovesLabels(ValueError):
    """A patch that cannot be sent without a change of the shard's labels; the text says what to send."""


class Patch:
    """A patch of one of the types PATCHES. Raises Malformed when it is made."""

    head: ObjectHead | None = None
    """It describes no object."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self._content: Final = content
        self._type: Final = content_type
        try:
            if content_type == JSON_PATCH:
                self._operations = _operations(content)
            else:
                self._fields = _fields(content)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Malformed(f"the body is no patch: {error}") from None

    def with_labels(self, labels: Mapping[str, str], annotations: Collection[str] = ()) -> bytes:
        """The same change, but *labels* have these values after it, and *annotations* stay as they are.

        Raises: RemovesLabels, Malformed.
        """
        try:
            if self._type == JSON_PATCH:
                return self._json_patch(labels, annotations)
            return self._merge_patch(labels, annotations)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Malformed(f"the body is no patch of metadata: {error}") from None

    def _merge_patch(self, labels: Mapping[str, str], annotations: Collection[str]) -> bytes:
        metadata = _fields_or_null(self._fields.get("metadata", b"null")) or {}
        if any(directive in fields for directive in _DIRECTIVES for fields in (self._fields, metadata)):
            raise RemovesLabels("a patch that replaces all metadata is not passed on; name what changes")
        changes = _object_or_null(metadata.get(_ANNOTATIONS, b"null")) or {}
        if any(name in changes for name in annotations):
            kept = {name: text for name, text in changes.items() if name not in annotations}
            metadata |= {_ANNOTATIONS: _raw(kept)}
        elif "labels" not in metadata:
            return self._content
        if "labels" not in metadata:
            return _encode(self._fields | {"metadata": _raw(metadata)})
        asked = _object_or_null(metadata["labels"])
        if asked is None:  # takes all of them
            asked = {_DIRECTIVE: "replace"}
        is_whole = any(directive in asked for directive in _DIRECTIVES)
        if is_whole and (self._type == MERGE_PATCH or asked.get(_DIRECTIVE) != "replace"):
            raise RemovesLabels("a patch that removes all labels is not passed on; name those that go")
        changed = {key: value for key, value in asked.items() if key not in labels}
        if is_whole:
            changed |= labels
        return _encode(self._fields | {"metadata": _raw(metadata | {"labels": _raw(changed)})})

    def _json_patch(self, labels: Mapping[str, str], annotations: Collection[str]) -> bytes:
        hidden = {("metadata", _ANNOTATIONS, name) for name in annotations}
        kept = []
        for operation in self._operations:
            path, source = (_path(operation.get(name)) for name in ("path", "from"))
            if path in hidden:
                continue
            if not (_touches(path) or _touches(source)):
                kept.append(operation)
            elif source is not None or path is None:
                raise RemovesLabels("a patch that moves or copies labels is not passed on")
            elif (changed := _operation(operation, path, labels)) is not None:
                kept.append(changed)
        return _encode(kept)


def _operation(
    operation: dict[str, msgspec.Raw], path: tuple[str, ...], labels: Mapping[str, str]
) -> dict[str, msgspec.Raw] | None:
    """An operation on labels, or on what holds them, that leaves *labels* as they are; None: nothing of it is left."""
    is_removal = _text(operation.get("op", b'""')) == "remove"
    if len(path) > len(_LABELS):
        key = path[len(_LABELS)]
        if key not in labels:
            return operation
        return None if is_removal else operation | {"value": _raw(labels[key])}
    if is_removal:
        if path != _LABELS:
            return operation  # the server refuses it
        return operation | {"op": _raw("replace"), "value": _raw(labels)}
    value = _any(operation.get("value", b"null"))
    return operation | {"value": _raw(_with_labels(value, _LABELS[len(path) :], labels))}


def _with_labels(value: Any, path: tuple[str, ...], labels: Mapping[str, str]) -> Any:
    """*value* with *labels* at *path* below it."""
    if value is not None and not isinstance(value, dict):
        return value  # the server refuses it
    inner = dict(value or {})
    if not path:
        return inner | dict(labels)
    return inner | {path[0]: _with_labels(inner.get(path[0]), path[1:], labels)}


def _touches(path: tuple[str, ...] | None) -> bool:
    """Whether *path* leads to labels, or to what holds them."""
    return path is not None and path[: len(_LABELS)] == _LABELS[: len(path)]


def _path(raw: msgspec.Raw | None) -> tuple[str, ...] | None:
    if raw is None:
        return None
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in _text(raw).split("/")[1:])


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


_encode: Final = msgspec.json.encode
_any: Final = msgspec.json.Decoder().decode
_text: Final = msgspec.json.Decoder(str).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_fields_or_null: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_object_or_null: Final = msgspec.json.Decoder(dict[str, Any] | None).decode
_operations: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
