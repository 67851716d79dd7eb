"""Removes what a cluster with nodes leaves when it was killed: cgroups, cables, the bridge.

Processes, mounts and namespaces of nodes end with the process that kept the cluster.
"""

from __future__ import annotations

from pathlib import Path

from devcluster.nodes.cgroups import remove_cgroup
from devcluster.nodes.network import NodeNetwork

_NETWORK = "network"


def note_network(folder: Path, network: NodeNetwork) -> None:
    """Note in the cluster's *folder* which network is its own, for `remove_leftovers`."""
    (folder / _NETWORK).write_text(str(network.number))


def remove_leftovers(folder: Path) -> None:
    """Remove the network and the cgroups of the cluster in *folder*; nothing if it has none.

    Raises: OSError if a process there does not end.
    """
    note = folder / _NETWORK
    if not note.is_file():
        return
    network = NodeNetwork(int(note.read_text()))
    remove_cgroup(network.bridge)
    network.remove()
    note.unlink()
