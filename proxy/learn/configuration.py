"""The ring and the command line for a controller that was learned. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from proxy.learn.references import references
from proxy.learn.seen import Seen
from proxy.learn.trees import Trees, companions

IN_FLIGHT = 10_000
"""All that should move at once: each batch costs one restart."""


def ring_document(seen: Seen, trees: Trees) -> dict[str, Any]:
    """The ControllerRing that distributes *trees*."""
    name = _ring_name(trees)
    spec: dict[str, Any] = {"leaseNamespace": f"{name}-rings"}
    if trees.is_deep:
        spec["key"] = "Owner"
    elif references(seen, trees):
        spec["key"] = "Namespace"
    spec["maxInFlight"] = spec["maxInFlightPerOwner"] = IN_FLIGHT
    namespaces = set().union(*(seen.kind(root).namespaces or {""} for root in trees.roots))
    if "" not in namespaces:
        wanted = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
        spec["namespaceSelector"] = {"matchExpressions": [wanted]}
    spec["resources"] = [_parent(each, trees) for each in dict.fromkeys([*trees.roots, *trees.children])]
    return {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": spec,
    }


def command_line(seen: Seen, trees: Trees, command: Sequence[str]) -> list[str]:
    """The words that run *command* as a shard of the ring of *trees*."""
    flags = ["--ring", _ring_name(trees)]
    if trees.leaves:
        flags += ["--leaves", ",".join(trees.leaves)]
    if locks := seen.lock_names():
        flags += ["--locks", ",".join(locks)]
    by_name = [
        f"{name}={of}" for name, others in companions(seen).items() for of in others if of in trees.kinds
    ]
    if by_name:
        flags += ["--companions", ",".join(by_name)]
    return ["ringleader", "proxy", *flags, "--", *command]


def as_typed(words: Sequence[str]) -> str:
    """*words* as a shell takes them."""
    return shlex.join(words)


def _ring_name(trees: Trees) -> str:
    return trees.roots[0].partition(".")[0]


def _parent(kind: str, trees: Trees) -> dict[str, Any]:
    children = [_entry(child) for child in trees.children.get(kind, [])]
    return _entry(kind) | ({"controlledResources": children} if children else {})


def _entry(kind: str) -> dict[str, str]:
    resource, _, group = kind.partition(".")
    return {"group": group, "resource": resource} if group else {"resource": resource}
