"""A real control plane with real nodes as one object: `node_plane` starts it, the block's end removes it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from devcluster.children import PlaneFailed
from devcluster.nodes.leftovers import note_network, remove_leftovers
from devcluster.nodes.network import MOST_NODES, create_network
from devcluster.nodes.node import Node
from devcluster.nodes.pause import write_pause_image
from devcluster.nodes.requirements import find_node_binaries
from devcluster.real.administrator import Administrator
from devcluster.real.audit_log import DEFAULT_GROUPS
from devcluster.real.real_plane import RealPlane
from kubeio.errors import InputError

_READY_S = 180.0


class NodePlane(RealPlane):
    """A `RealPlane` with kube-scheduler, a full kube-controller-manager, and nodes."""

    nodes: Sequence[Node] = ()
    cgroup = ""
    """The cgroup of all pods, below each root."""

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *(pid for node in self.nodes for pid in node.pids)]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    async def import_image(self, archive: Path) -> None:
        """Import an image archive into every node. Raises: PlaneFailed."""
        await asyncio.gather(*(node.import_image(archive) for node in self.nodes))

    async def start_node(self, node: Node) -> None:
        """Start *node* under an account of its own."""
        kubelet = await self.kubeconfig_for(f"system:node:{node.name}", groups=["system:nodes"], admin=False)
        proxy = await self.kubeconfig_for("system:kube-proxy", admin=False)
        others = [other.index for other in self.nodes if other is not node]
        await node.start(kubelet=kubelet, proxy=proxy, others=others)

    async def wait_nodes_ready(self) -> None:
        """Raises: PlaneFailed with the end of a log."""
        administrator = Administrator(self.kubeconfig)
        deadline = time.monotonic() + _READY_S
        while (ready := await administrator.ready_nodes()) < {node.name for node in self.nodes}:
            problems = [problem for node in self.nodes if (problem := node.problem())]
            if problems or time.monotonic() > deadline:
                raise PlaneFailed(problems[0] if problems else f"only {sorted(ready)} are ready")
            await asyncio.sleep(0.5)

    async def stop(self) -> None:
        for node in self.nodes:
            await node.end()
        await super().stop()


@contextlib.asynccontextmanager
async def node_plane(directory: Path, *, nodes: int = 1, audit: bool = False) -> AsyncIterator[NodePlane]:
    """A running control plane with *nodes* ready nodes; its files are in *directory*. Nothing is left after the block.

    Raises: RequirementsMissing, BinariesMissing, InputError, PlaneFailed.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise InputError("--nodes", nodes, "is no number of nodes", f"use 1 to {MOST_NODES}")
    binaries = await asyncio.to_thread(find_node_binaries)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    network = await asyncio.to_thread(create_network)
    note_network(directory, network)
    plane = NodePlane(
        directory,
        binaries=binaries,
        audited_groups=DEFAULT_GROUPS if audit else None,
        node_address=network.address,
    )
    plane.cgroup = network.bridge
    plane.nodes = [
        Node(
            index, folder=directory, network=network, binaries=binaries, client_ca=directory / "client-ca.crt"
        )
        for index in range(1, nodes + 1)
    ]
    try:
        await plane.start()
        await Administrator(plane.kubeconfig).allow_kube_proxy()
        pause = await asyncio.to_thread(write_pause_image, directory / "pause.tar", binaries["pause"])
        await asyncio.gather(*(plane.start_node(node) for node in plane.nodes))
        await plane.import_image(pause)
        await plane.wait_nodes_ready()
        yield plane
    finally:
        await plane.stop()
        await asyncio.to_thread(remove_leftovers, directory)
