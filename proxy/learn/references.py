"""Objects that name others in their spec: a controller that reads those needs them in the same shard. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.learn.seen import Seen
from proxy.learn.trees import Trees

_DEEPEST: Final = 30
_SUFFIX: Final = re.compile(r"(Ref|Reference|Name)s?$")
_SAME_KIND: Final = "dependsOn"


def references(seen: Seen, trees: Trees) -> list[tuple[str, str, str]]:
    """Kinds of *trees* with a kind of roots that their objects name, and an example."""
    return [
        (name, other, example)
        for name in trees.kinds
        for other, example in seen.kind(name).named.items()
        if other in trees.roots
    ]


def named_kinds(obj: Mapping[str, Any], kinds: Mapping[str, str], *, own: str) -> dict[str, str]:
    """What of *kinds* (resources by kind, `Issuer`) the spec of *obj*, one of *own*, names, and where it does.

    By `kind` and `name`, or by a key such as `issuerRef`, `issuerName` or `dependsOn`.
    """
    known = {kind.lower(): resource for kind, resource in kinds.items()}
    known[_SAME_KIND.lower()] = own
    found: dict[str, str] = {}
    for path, key, value in _values(obj.get("spec"), "spec", "", 0):
        kind = _SUFFIX.sub("", key)
        name: object = value
        if isinstance(value, dict):
            kind, name = value.get("kind") or kind, value.get("name")
        if isinstance(kind, str) and isinstance(name, str) and name and kind.lower() in known:
            found.setdefault(known[kind.lower()], f"{path}: {name}")
    return found


def _values(value: object, path: str, key: str, depth: int) -> Iterator[tuple[str, str, object]]:
    """Every value inside *value* with its path, and the key that it or its list stands under."""
    if depth > _DEEPEST:
        return
    yield path, key, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _values(inner, f"{path}.{name}", str(name), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, path, key, depth + 1)
