"""A network namespace for each replica, on a bridge of this machine: its cable can be pulled.

What a pulled cable keeps is sent again when it is back: requests arrive late, connections do not break. Owns the
bridge, the cables, and the process that keeps each namespace. Needs root, `ip`, `nsenter` and `unshare`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

from devcluster.children import Child, start_child
from devcluster.nodes.network import NetworkFailed, NodeNetwork, create_network

Pull = Callable[[bool], None]
_STARTED_S = 10.0


def missing() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "the user is not root"
    absent = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    return f"no {', '.join(absent)} on PATH" if absent else ""


def inside(directory: Path) -> tuple[str, ...]:
    """The command line in front of a replica's own that puts it into its namespace."""
    return ("nsenter", f"--net={directory / '{member}.net'}", "--")


@contextlib.asynccontextmanager
async def open_bridge() -> AsyncIterator[NodeNetwork | None]:
    """A bridge for namespaces; None where there can be none."""
    try:
        network = None if missing() else await asyncio.to_thread(create_network)
    except NetworkFailed:
        network = None
    try:
        yield network
    finally:
        if network is not None:
            await asyncio.to_thread(network.remove)


@contextlib.asynccontextmanager
async def open_namespaces(
    network: NodeNetwork, directory: Path, names: Sequence[str]
) -> AsyncIterator[dict[str, Pull]]:
    """A namespace on *network* for each of *names*; yields what pulls (True) and plugs (False) the cable of each."""
    async with contextlib.AsyncExitStack() as stack:
        for index, name in enumerate(names, start=1):
            command = ["/usr/bin/env", "unshare", "--net", "sleep", "infinity"]
            keeper = await start_child(command, name=f"the network of {name}", log=directory / "networks.log")
            stack.push_async_callback(keeper.end, grace_s=0)
            await _wait_apart(keeper)
            await asyncio.to_thread(network.connect, index, pid=keeper.pid, others=())
            namespace = f"/proc/{keeper.pid}/ns/net"
            up = ["nsenter", f"--net={namespace}", "ip", "link", "set", "lo", "up"]
            await asyncio.to_thread(subprocess.run, up, check=True)
            (directory / f"{name}.net").symlink_to(namespace)
        yield {name: partial(_pull, network, index) for index, name in enumerate(names, start=1)}


def _pull(network: NodeNetwork, index: int, is_out: bool) -> None:
    if is_out:
        network.cut(index)
    else:
        network.mend(index)


async def _wait_apart(keeper: Child) -> None:
    async with asyncio.timeout(_STARTED_S):
        while _namespace(keeper.pid) == _namespace(os.getpid()):  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.02)


def _namespace(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()
