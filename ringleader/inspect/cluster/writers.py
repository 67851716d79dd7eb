"""Who may write the objects of a ring: by the names of field managers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringleader.inspect.cluster.rings import Life, Ring

TOOLS: Final = (
    "ringleader",
    "kubectl",
    "k9s",
    "helm",
    "Helm",
    "argocd",
    "kustomize-controller",
    "kube-controller-manager",
    "kube-apiserver",
    "before-first-apply",
    "node-fetch",
    "Mozilla",
    "curl",
    "python-requests",
)
"""Beginnings of field managers that people and the cluster itself write with, and our own."""


def is_tool(manager: str) -> bool:
    """Whether *manager* is no controller."""
    return manager.startswith(TOOLS)


def writers_of(ring: Ring, lives: Iterable[Life]) -> set[str]:
    """Names under which the shards of *ring* write: what their Leases say, and what is usual for older ones."""
    usual = {ring.name} | {each.resource for each in ring.spec.resources}
    return usual.union(*((life.shard, life.member, life.field_manager) for life in lives))
