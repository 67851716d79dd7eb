"""The three ways to change a part of an object: JSON Patch, merge patch, server-side apply. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

_encode = msgspec.json.Encoder().encode


class _Operation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    op: str
    path: str
    value: object = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: all operations or none. A `test` that fails is answered 422: a fence inside the server's CAS.

    Built by chaining, each call gives a new patch: `JsonPatch().test(pointer, "a").replace(pointer, "b")`.
    """

    operations: tuple[_Operation, ...] = ()
    content_type: ClassVar[str] = "application/json-patch+json"

    def test(self, pointer: str, value: object) -> JsonPatch:
        """Go on only if *value* stands at *pointer* (RFC 6901; `kubeio.labels.json_pointer`)."""
        return self._with("test", pointer, value)

    def replace(self, pointer: str, value: object) -> JsonPatch:
        """Replace what stands at *pointer*; fails if nothing does."""
        return self._with("replace", pointer, value)

    def add(self, pointer: str, value: object) -> JsonPatch:
        """Set a member, or insert before an element; the parent must exist."""
        return self._with("add", pointer, value)

    def remove(self, pointer: str) -> JsonPatch:
        """Remove what stands at *pointer*; fails if nothing does."""
        return JsonPatch((*self.operations, _Operation("remove", pointer)))

    def encode(self) -> bytes:
        return _encode(self.operations)

    def _with(self, op: str, pointer: str, value: object) -> JsonPatch:
        return JsonPatch((*self.operations, _Operation(op, pointer, value)))


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7396: null removes a member. Conditional if *doc* carries `metadata.resourceVersion`: 409."""

    doc: Mapping[str, object]
    content_type: ClassVar[str] = "application/merge-patch+json"

    def encode(self) -> bytes:
        return _encode(self.doc)


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Server-side apply; needs a field manager. Creates a missing object unless `metadata.uid` is given.

    *force* takes fields over from other managers instead of a conflict.
    """

    doc: Mapping[str, object]
    force: bool = False
    content_type: ClassVar[str] = "application/apply-patch+yaml"

    def encode(self) -> bytes:
        return _encode(self.doc)


Patch = JsonPatch | MergePatch | ApplyPatch


def merged(target: Any, patch: Any) -> Any:
    """*target*, which may be changed, after merge patch *patch*: maps are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
