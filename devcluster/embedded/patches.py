"""The patch formats: JSON Patch (RFC 6902), merge patch (RFC 7396), and as much of the strategic merge patch
as the built-in resources need. Pure: takes an object apart from its history, gives the patched one.

`writes` decides whether the result may be stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import jsonpatch
import jsonpointer
import msgspec

from devcluster.embedded.status import Refusal, bad_request, patch_failed, unsupported_media
from kubeio.patch import merged

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

Doc = dict[str, Any]
"""A decoded object of the API."""


def apply_patch(content_type: str, body: bytes, doc: Doc, *, strategic: bool) -> Doc:
    """*doc* patched; *doc* itself may be changed on the way. *strategic*: the resource is a built-in one.

    Raises: 400 malformed, 415 a format that is not served, 422 a JSON Patch that does not fit the object.
    """
    match content_type:
        case "application/json-patch+json":
            return _json_patch(_decoded(body), doc)
        case "application/merge-patch+json":
            return _object(merged(doc, _decoded(body)))
        case "application/strategic-merge-patch+json" if strategic:
            return _object(_strategic(doc, _decoded(body), ()))
    raise not_served(content_type, strategic=strategic)


def not_served(content_type: str, *, strategic: bool) -> Refusal:
    served = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC_PATCH] if strategic else []), APPLY_PATCH]
    return unsupported_media(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(served)
        + f"; got {content_type or 'none'}"
    )


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _object(doc: Any) -> Doc:
    if not isinstance(doc, dict):
        raise bad_request("the patch does not leave an object")
    return doc


def _json_patch(operations: Any, doc: Doc) -> Doc:
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise bad_request("error decoding patch: a JSON Patch is an array of operations")
    if len(operations) > 10_000:
        raise Refusal(413, "RequestEntityTooLarge", "The allowed maximum operations in a JSON patch is 10000")
    try:
        for operation in operations:
            doc = _operation(operation).apply(doc)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
        raise patch_failed() from error
    return _object(doc)


class _Replace(jsonpatch.ReplaceOperation):
    """Unlike RFC 6902 and like the real server: a key that is missing in a map is added."""

    def apply(self, obj: Any) -> Any:
        parent, key = self.pointer.to_last(obj)
        if isinstance(parent, dict) and key is not None and key not in parent:
            parent[key] = self.operation["value"]
            return obj
        return super().apply(obj)


_OPERATIONS: Final = {**jsonpatch.JsonPatch.operations, "replace": _Replace}
_pointer: Final = lru_cache(maxsize=4096)(jsonpointer.JsonPointer)


def _operation(operation: Doc) -> Any:
    """The library's operation, on a pointer that is parsed once: its JsonPatch builds each of them twice."""
    return _OPERATIONS[operation["op"]]({**operation, "path": _pointer(operation["path"])})


_MERGED_LISTS: Final = {("metadata", "finalizers"): "", ("metadata", "ownerReferences"): "uid"}
"""Lists that a strategic patch merges: path -> the key of an element ("" = plain values)."""


def _strategic(target: Any, patch: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            listed = merged.get(key.partition("/")[2]) or []
            merged[key.partition("/")[2]] = [item for item in listed if item not in value]
        elif key.startswith("$"):
            raise bad_request(f"strategic merge patch: the directive {key!r} is not served here")
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and (*path, key) in _MERGED_LISTS:
            merged[key] = _merged_list(merged.get(key) or [], value, _MERGED_LISTS[(*path, key)])
        else:
            merged[key] = _strategic(merged.get(key), value, (*path, key))
    return merged


def _merged_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    if not key:
        return target + [item for item in patch if item not in target]
    merged = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = {**merged.get(item.get(key), {}), **item}
    return list(merged.values())
