"""JSON Patch operations that bring an object to its wanted fields. Pure.

Fields that are not named stay, so defaults of the server and labels of others survive.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch

WHOLE = frozenset({"data", "binaryData", "stringData"})
"""Top-level maps that are replaced as a whole: a key that is no longer wanted goes."""


def extend(
    patch: JsonPatch,
    current: Mapping[str, object],
    wanted: Mapping[str, object],
    *,
    at: tuple[str, ...] = (),
    whole: frozenset[str] = frozenset(),
) -> JsonPatch:
    """*patch* with the operations that bring *wanted* into *current*, which stands at the path *at*.

    Maps are merged, everything else is replaced, None removes. The order of operations is that of *wanted*.
    """
    for name, value in wanted.items():
        pointer = json_pointer(*at, name)
        if value is None:
            patch = patch.remove(pointer) if name in current else patch
        elif name not in current:
            patch = patch.add(pointer, without_none(value))
        elif name in whole or not _both_maps(current[name], value):
            patch = patch if current[name] == value else patch.replace(pointer, value)
        else:
            patch = _extend_inside(patch, current[name], value, at=(*at, name))
    return patch


def without_none(value: object) -> object:
    """*value* without the entries of maps that say None: there is nothing to remove in what is new."""
    if isinstance(value, Mapping):
        return {name: without_none(inner) for name, inner in value.items() if inner is not None}
    return value


def _both_maps(current: object, value: object) -> bool:
    return isinstance(current, Mapping) and isinstance(value, Mapping)


def _extend_inside(patch: JsonPatch, current: object, wanted: object, *, at: tuple[str, ...]) -> JsonPatch:
    if isinstance(current, Mapping) and isinstance(wanted, Mapping):
        return extend(patch, current, wanted, at=at)
    return patch
