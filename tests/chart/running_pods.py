"""Pods that run as processes, each with a token of its own; what a kubelet and two workload controllers would do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devcluster.real.real_plane import RealPlane
from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.kubelet import pod_address
from tests.chart.pods import PodProcess, pod_of, start_pod

PODS = ApiResource("", "v1", "pods", "Pod")


@dataclass
class Pods:
    """Pods that run, by name; what a kubelet and two workload controllers would do with them."""

    plane: RealPlane
    admin: IndependentClient
    directory: Path
    running: dict[str, PodProcess] = field(default_factory=dict)
    ended: list[PodProcess] = field(default_factory=list)
    rng: random.Random = field(default_factory=random.Random)

    async def start(self, workload: Doc, name: str) -> PodProcess:
        """Create the pod *name* from the template that the API server holds, and run it."""
        pod = pod_of(workload, name)
        created = await self.admin.create(PODS, pod, namespace=pod["metadata"]["namespace"])
        self.running[name] = await self.run(created)
        return self.running[name]

    async def run(self, pod: Doc) -> PodProcess:
        """Run a pod that exists, with a token of that very pod."""
        meta = pod["metadata"]
        kubeconfig = await self.plane.service_account_kubeconfig(
            meta["namespace"], pod["spec"]["serviceAccountName"], pod=meta["name"]
        )
        address = pod_address(self.rng)
        return await start_pod(pod, kubeconfig=kubeconfig, directory=self.directory, address=address)

    async def set_phase(self, name: str, namespace: str, phase: str) -> None:
        """Report the pod as its kubelet does."""
        path = f"{PODS.path(namespace=namespace, name=name)}/status"
        patch = {"status": {"phase": phase}}
        await self.admin.request("PATCH", path, body=patch, content_type="application/merge-patch+json")

    async def start_all(self, workload: Doc, names: list[str]) -> None:
        await asyncio.gather(*(self.start(workload, name) for name in names))
        await asyncio.gather(*(self.wait_ready(name) for name in names))

    async def wait_ready(self, name: str) -> None:
        pod = self.running[name]

        async def is_ready() -> bool:
            assert pod.child.is_running, pod.log()
            return await pod.probe("readinessProbe") == 200 and await pod.probe("livenessProbe") == 200

        await eventually(is_ready, within_s=30, told=pod.log)

    async def stop(self, name: str) -> int:
        """End the pod *name* in good order, and delete it; its exit code."""
        code = await self.running[name].stop()
        await self._delete(name)
        return code

    async def kill(self, name: str) -> None:
        """End the pod *name* as a lost node does."""
        await self.running[name].child.end(grace_s=0)
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        pod = self.running.pop(name)
        self.ended.append(pod)
        await self.admin.delete(PODS, name, namespace=pod.pod["metadata"]["namespace"])

    async def restart_ended(self) -> None:
        """A container that ended is started again, whatever its exit code (restartPolicy Always)."""
        for name, pod in list(self.running.items()):
            if not pod.child.is_running:
                self.ended.append(pod)
                kubeconfig = pod.kubeconfig  # its pod is the same
                self.running[name] = await start_pod(
                    pod.pod, kubeconfig=kubeconfig, directory=self.directory, address=pod.address
                )

    async def roll(self, workload: Doc, names: list[str]) -> None:
        """Replace pod after pod, each when the one before is ready."""
        for name in names:
            assert await self.stop(name) == 0
            await self.start(workload, name)
            await self.wait_ready(name)

    def logs(self) -> dict[str, str]:
        return {pod.child.log.name: pod.log() for pod in [*self.running.values(), *self.ended]}


async def eventually(
    is_so: Callable[[], Awaitable[bool]], *, within_s: float, told: Callable[[], object] = lambda: ""
) -> None:
    """Return once *is_so*; fail with what *told* says after *within_s*."""
    try:
        async with asyncio.timeout(within_s):
            while not await is_so():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"not so within {within_s} s: {told()}")
