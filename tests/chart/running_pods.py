"""The chart's pods as processes: the real workload controllers make them, the process kubelet runs them.

The one mapping from image to checkout: an image's ENTRYPOINT is read from manifests/Containerfile; `ringleader` and
`python` in the image are this environment's `python -m ringleader` and `python`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.containers import Images, port_of
from ringleader.testing.kubelet import PODS, Kubelet, PodProcesses, process_kubelet
from ringleader.testing.single_task import single_task
from tests.chart.helm import ROOT

DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
STATEFULSETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
PROGRAMS = {"ringleader": [sys.executable, "-m", "ringleader"], "python": [sys.executable]}
WITHIN_S = 60.0


def images() -> Images:
    """This checkout in place of images."""
    containerfile = (ROOT / "manifests" / "Containerfile").read_text()
    (found,) = re.findall(r"^ENTRYPOINT (\[.*\])$", containerfile, re.MULTILINE)
    return Images(programs=PROGRAMS, entrypoint=json.loads(found))


class Pods:
    """The pods of a kubelet, as tests ask for them; *admin* is the cluster's administrator."""

    def __init__(self, kubelet: Kubelet, admin: IndependentClient) -> None:
        self._kubelet = kubelet
        self._admin = admin

    def named(self, prefix: str) -> list[PodProcesses]:
        """The pods that are there, by name."""
        found = [pod for pod in self._kubelet.pods.values() if pod.name.startswith(prefix)]
        return sorted(found, key=lambda pod: pod.name)

    async def wait_rolled_out(self, resource: ApiResource, name: str, namespace: str) -> None:
        """`kubectl rollout status`, and no pod of before is left."""

        async def is_rolled_out() -> bool:
            workload = await self._admin.get(resource, name, namespace=namespace)
            wanted, status = workload["spec"]["replicas"], workload.get("status") or {}
            figures = [status.get(field, 0) for field in ("replicas", "readyReplicas", "updatedReplicas")]
            is_observed = status.get("observedGeneration") == workload["metadata"]["generation"]
            labels = workload["spec"]["selector"]["matchLabels"]
            pods = [pod["metadata"] for pod in await self._admin.list_all(PODS)]
            there = [
                pod
                for pod in pods
                if pod["namespace"] == namespace and labels.items() <= pod.get("labels", {}).items()
            ]
            # the kubelet, too, knows which pods were deleted
            is_seen = self._kubelet.pods.keys() <= {pod["uid"] for pod in pods}
            return is_observed and figures == [wanted] * 3 and len(there) == wanted and is_seen

        await eventually(is_rolled_out, within_s=WITHIN_S, told=self.logs)

    async def restart(self, resource: ApiResource, name: str, namespace: str) -> None:
        """`kubectl rollout restart`, to its end."""
        annotation = {"kubectl.kubernetes.io/restartedAt": str(time.time())}
        template = {"metadata": {"annotations": annotation}}
        await self._admin.merge(resource, name, {"spec": {"template": template}}, namespace=namespace)
        await self.wait_rolled_out(resource, name, namespace)

    async def wait_gone(self, namespace: str) -> None:
        """Until no pod is left in *namespace*."""

        async def are_gone() -> bool:
            return not await self._admin.list_all(PODS, namespace=namespace)

        await eventually(are_gone, within_s=WITHIN_S, told=self.logs)

    def logs(self, *, ended: int = 0) -> dict[str, str]:
        """What each pod printed, but for the first *ended* that were deleted."""
        pods = [*self._kubelet.ended[ended:], *self._kubelet.pods.values()]
        return {pod.directory.name: pod.log() for pod in pods}

    @property
    def ended(self) -> int:
        """How many pods were deleted."""
        return len(self._kubelet.ended)


async def scrape(pod: PodProcesses, service: Doc) -> str:
    """Metrics of *pod* through the port of *service*, once a request of its was answered: a container may restart."""
    (port,) = service["spec"]["ports"]
    number = port_of(pod.doc["spec"]["containers"][0], port.get("targetPort", port["port"]))
    url = f"http://{pod.address}:{number}/metrics"
    texts: list[str] = []

    async def has_worked() -> bool:
        try:
            async with session.get(url) as got:
                texts.append(await got.text())
                return 'rest_client_requests_total{code="200"' in texts[-1]
        except aiohttp.ClientConnectorError:
            return False

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        await eventually(has_worked, within_s=WITHIN_S, told=lambda: f"{texts[-1:]} {pod.log()}")
    return texts[-1]


@asynccontextmanager
async def running_pods(kubeconfig: Path, admin: IndependentClient, directory: Path) -> AsyncIterator[Pods]:
    """A process kubelet for the chart's pods; their files are in *directory*."""
    async with single_task(process_kubelet(kubeconfig, directory, images=images())) as kubelet:
        yield Pods(kubelet, admin)


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
