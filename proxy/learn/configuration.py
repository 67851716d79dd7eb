"""The ring and the command line for a controller that was learned. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from proxy.learn.seen import Seen
from proxy.learn.trees import Tree, companions

IN_FLIGHT = 10_000
"""All that should move at once: each batch costs one restart."""


def ring_document(seen: Seen, tree: Tree) -> dict[str, Any]:
    """The ControllerRing that distributes *tree*."""
    name = tree.root.partition(".")[0]
    spec: dict[str, Any] = {"leaseNamespace": f"{name}-rings"}
    if tree.is_deep:
        spec["key"] = "Owner"
    spec["maxInFlight"] = spec["maxInFlightPerOwner"] = IN_FLIGHT
    namespaces = seen.kind(tree.root).namespaces
    if namespaces and "" not in namespaces:
        wanted = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
        spec["namespaceSelector"] = {"matchExpressions": [wanted]}
    spec["resources"] = [_parent(each, tree) for each in tree.children or [tree.root]]
    return {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": spec,
    }


def command_line(seen: Seen, tree: Tree, command: Sequence[str]) -> list[str]:
    """The words that run *command* as a shard of the ring of *tree*."""
    flags = ["--ring", tree.root.partition(".")[0], "--resource", tree.root]
    if tree.leaves:
        flags += ["--leaves", ",".join(tree.leaves)]
    if locks := seen.lock_names():
        flags += ["--locks", ",".join(locks)]
    by_name = [
        f"{name}={of}" for name, others in companions(seen).items() for of in others if of in tree.kinds
    ]
    if by_name:
        flags += ["--companions", ",".join(by_name)]
    return ["ringleader", "proxy", *flags, "--", *command]


def as_typed(words: Sequence[str]) -> str:
    """*words* as a shell takes them."""
    return shlex.join(words)


def _parent(kind: str, tree: Tree) -> dict[str, Any]:
    children = [_entry(child) for child in tree.children.get(kind, [])]
    return _entry(kind) | ({"controlledResources": children} if children else {})


def _entry(kind: str) -> dict[str, str]:
    resource, _, group = kind.partition(".")
    return {"group": group, "resource": resource} if group else {"resource": resource}
