"""Imports image archives into nodes: into those of this process, and by a cluster's folder into those of another."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from devcluster.children import PlaneFailed
from devcluster.nodes.configuration import SOCKET
from devcluster.nodes.requirements import find_node_binaries

_INIT_PID = "init.pid"


def note_init(folder: Path, pid: int) -> None:
    """Note in a node's *folder* the pid of its process 1, for `import_into`."""
    (folder / _INIT_PID).write_text(str(pid))


def inside_of(init_pid: int) -> list[str]:
    """The command that enters the namespaces of the node with process 1 *init_pid*; what it starts dies with it."""
    nsenter, setpriv = shutil.which("nsenter") or "", shutil.which("setpriv") or ""
    return [nsenter, "--target", str(init_pid), "--net", "--mount", "--pid", setpriv, "--pdeathsig", "KILL"]


def import_into(folder: Path, archive: Path) -> list[str]:
    """Import an image archive into every node of the cluster in *folder*; the nodes' names.

    Raises: PlaneFailed if there is no node, or containerd refuses the archive; RequirementsMissing; BinariesMissing.
    """
    nodes = sorted(note.parent for note in folder.glob(f"*/{_INIT_PID}"))
    if not nodes:
        raise PlaneFailed("it has no nodes (ringleader devcluster up --real --nodes 1)")
    ctr = find_node_binaries()["ctr"]

    async def import_everywhere() -> None:
        inits = {node.name: int((node / _INIT_PID).read_text()) for node in nodes}
        await asyncio.gather(*(import_image(name, pid, ctr, archive) for name, pid in inits.items()))

    asyncio.run(import_everywhere())
    return [node.name for node in nodes]


async def import_image(name: str, init_pid: int, ctr: Path, archive: Path) -> None:
    """Import *archive* into containerd of the node *name*, for pods. Raises: PlaneFailed."""
    if answer := await run_ctr(init_pid, ctr, "images", "import", "--local", str(archive)):
        raise PlaneFailed(f"{name} refused the image {archive}: {answer}")


async def run_ctr(init_pid: int, ctr: Path, *arguments: str) -> str:
    """Run *ctr* in the namespace of pods; what it says if it fails, empty if it does not."""
    command = [*inside_of(init_pid), str(ctr), "--address", SOCKET, "--namespace", "k8s.io", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return f"{out.decode().strip()} (exit {process.returncode})" if process.returncode else ""
