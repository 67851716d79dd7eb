"""One node: namespaces of its own, and containerd, kubelet and kube-proxy inside."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.children import Child, PlaneFailed, start_child
from devcluster.nodes.cgroups import create_cgroup
from devcluster.nodes.configuration import (
    NodeFiles,
    cni_config,
    containerd_config,
    kubelet_config,
    kubelet_flags,
    proxy_config,
)
from devcluster.nodes.images import import_image, inside_of, note_init, run_ctr
from devcluster.nodes.network import NodeNetwork
from devcluster.real.recipes import CNI_PLUGINS

_INIT = """set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t overlay -o lowerdir=/var/lib,upperdir="$1/var-lib",workdir="$1/var-lib-work" overlay /var/lib
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
trap '' CHLD
exec sleep infinity
"""
"""Process 1 of a node: orphans that end are reaped by the kernel, since SIGCHLD is ignored.

/run, /var/log and /var/lib are the node's own: programs have paths there built in.
"""
_START_S = 60.0


class Node:
    """The node `node-<index>`. Its processes, mounts and network end with its process 1, also by SIGKILL."""

    def __init__(
        self, index: int, *, folder: Path, network: NodeNetwork, binaries: Mapping[str, Path], client_ca: Path
    ) -> None:
        self.index = index
        self.files = NodeFiles(f"node-{index}", folder / f"node-{index}")
        self._network = network
        self._binaries = binaries
        self._client_ca = client_ca
        self._children: dict[str, Child] = {}
        self._init_pid = 0

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children.values() if child.is_running]

    async def start(self, *, kubelet: Path, proxy: Path, others: Sequence[int]) -> None:
        """Start everything but wait for containerd only. *kubelet*, *proxy*: kubeconfigs; *others*: its peers."""
        await asyncio.to_thread(self._write_files, kubelet=kubelet, proxy=proxy)
        await self._start_init()
        note_init(self.files.folder, self._init_pid)
        await asyncio.to_thread(self._network.connect, self.index, pid=self._init_pid, others=others)
        await self._enter("containerd", f"--config={self.files.containerd}")
        await self._wait_containerd()
        await self._enter("kube-proxy", f"--config={self.files.proxy}")
        address = self._network.node_address(self.index)
        await self._enter("kubelet", *kubelet_flags(self.files, address=address, kubeconfig=kubelet))

    async def import_image(self, archive: Path) -> None:
        """Import an image archive into containerd, for pods. Raises: PlaneFailed."""
        await import_image(self.name, self._init_pid, self._binaries["ctr"], archive)

    def cut(self) -> None:
        """Pull the network cable: the node is lost to the others, its pods go on."""
        self._network.cut(self.index)

    def mend(self) -> None:
        """Plug the network cable in again."""
        self._network.mend(self.index)

    def freeze_kubelet(self) -> None:
        """SIGSTOP kubelet: the node is silent, its pods go on."""
        os.kill(self._pid_of("kubelet"), signal.SIGSTOP)

    def wake_kubelet(self) -> None:
        os.kill(self._pid_of("kubelet"), signal.SIGCONT)

    async def end(self) -> None:
        """Power off: every process of the node is killed."""
        if init := self._children.get("init"):
            await init.end(grace_s=0)
        for child in self._children.values():
            await child.end(grace_s=0)

    def problem(self) -> str:
        """The end of the log of a program that has ended; empty while all run."""
        for name, child in self._children.items():
            if not child.is_running:
                return f"{name} of {self.name} ended:\n{child.last_lines()}"
        return ""

    def _write_files(self, *, kubelet: Path, proxy: Path) -> None:
        files, network = self.files, self._network
        cgroup = f"{network.bridge}/{self.name}"
        create_cgroup(cgroup)
        for folder in (files.cni / "bin", files.folder / "var-lib", files.folder / "var-lib-work"):
            folder.mkdir(parents=True, exist_ok=True)
        for plugin in CNI_PLUGINS:
            (files.cni / "bin" / plugin).symlink_to(self._binaries[plugin])
        address, pods = network.node_address(self.index), network.pods(self.index)
        files.containerd.write_text(containerd_config(files, self._binaries))
        (files.cni / "pods.conflist").write_text(cni_config(files, pods))
        files.kubelet.write_text(
            kubelet_config(files, address=address, client_ca=self._client_ca, cgroup=cgroup)
        )
        files.proxy.write_text(proxy_config(files, kubeconfig=proxy, all_pods=network.all_pods))

    async def _start_init(self) -> None:
        unshare = [shutil.which("unshare") or "", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        command = [*unshare, "--mount-proc", "--propagation", "private"]
        command += ["/bin/sh", "-c", _INIT, "init", str(self.files.folder)]
        child = self._children["init"] = await start_child(command, name="init", log=self.files.log("init"))
        deadline = time.monotonic() + _START_S
        while not self._is_init_ready(child.pid):
            if not child.is_running or time.monotonic() > deadline:
                raise PlaneFailed(f"{self.name} did not get its namespaces:\n{child.last_lines()}")
            await asyncio.sleep(0.02)

    def _is_init_ready(self, parent: int) -> bool:
        children = _children_of(parent)
        self._init_pid = children[0] if children else 0
        return bool(children) and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep"

    async def _enter(self, program: str, *arguments: str) -> None:
        path = os.pathsep.join([str(self._binaries["containerd"].parent), os.environ["PATH"]])
        command = [
            "/usr/bin/env",
            f"PATH={path}",
            *inside_of(self._init_pid),
            str(self._binaries[program]),
            *arguments,
        ]
        self._children[program] = await start_child(command, name=program, log=self.files.log(program))

    async def _wait_containerd(self) -> None:
        deadline = time.monotonic() + _START_S
        while refusal := await run_ctr(self._init_pid, self._binaries["ctr"], "version"):
            if (problem := self.problem()) or time.monotonic() > deadline:
                raise PlaneFailed(problem or f"containerd of {self.name} does not answer: {refusal}")
            await asyncio.sleep(0.1)

    def _pid_of(self, program: str) -> int:
        """The program's own process: a child of nsenter."""
        (pid,) = _children_of(self._children[program].pid)
        return pid


def _children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
