"""Labels of an owner in the pod templates of what it owns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_DEEPEST: Final = 30


def template_labels(obj: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Labels of every pod template in *obj*: of each `template.metadata.labels`, at any depth."""
    return [labels for key, value in _maps(obj) if key == "template" and (labels := _labels(value))]


def copied_labels(owner: Mapping[str, Any], templates: list[Mapping[str, str]]) -> tuple[bool, list[str]]:
    """Whether *owner* has labels by which a copy can be known, and those of them that stand in *templates*.

    A label that *owner* also says elsewhere (in its own template or selector) proves nothing.
    """
    rest = {key: value for key, value in owner.items() if key not in ("metadata", "status")}
    said = {(key, value) for key, value in _pairs(rest)}
    telling = {pair for pair in _labels(owner).items() if pair not in said}
    found = {pair for labels in templates for pair in labels.items()}
    return bool(telling), [f"{key}={value}" for key, value in sorted(telling & found)]


def _labels(obj: object) -> Mapping[str, str]:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _maps(value: object, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every map inside *value*, with its key."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict):
                yield key, inner
            yield from _maps(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _maps(inner, depth + 1)


def _pairs(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every key with a text inside *value*."""
    for _, found in [("", value), *_maps(value)]:
        for key, inner in found.items():
            if isinstance(inner, str):
                yield key, inner
