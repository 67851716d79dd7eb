"""Real nodes on this machine: kubelet, containerd and kube-proxy, each node in namespaces of its own.

`node_plane` starts a control plane with nodes and ends it with the block; `remove_leftovers` removes what a killed one
left. `RequirementsMissing` names what this machine lacks.
"""

from __future__ import annotations

from devcluster.nodes.cluster import NodePlane, node_plane
from devcluster.nodes.images import import_into
from devcluster.nodes.leftovers import remove_leftovers
from devcluster.nodes.requirements import (
    RequirementsMissing,
    check_available_programs,
    check_machine,
    ensure_node_binaries,
)

__all__ = [
    "NodePlane",
    "RequirementsMissing",
    "check_available_programs",
    "check_machine",
    "ensure_node_binaries",
    "import_into",
    "node_plane",
    "remove_leftovers",
]
