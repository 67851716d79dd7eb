"""A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager as child processes.

`real_plane` starts one and ends it with the block; `BinariesMissing` has the reason if there is none, and the remedy.
"""

from __future__ import annotations

from devcluster.children import PlaneFailed
from devcluster.real.binaries import BinariesMissing, ensure_binaries, helm_recipe, kubernetes_recipe
from devcluster.real.real_plane import RealPlane, real_plane

__all__ = [
    "BinariesMissing",
    "PlaneFailed",
    "RealPlane",
    "ensure_binaries",
    "helm_recipe",
    "kubernetes_recipe",
    "real_plane",
]
