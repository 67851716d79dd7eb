"""What a kubelet would make of a pod template, as a local process: there is no kubelet and no image here.

The one mapping from image to checkout: an image's ENTRYPOINT is read from manifests/Containerfile; `ringleader` and
`python` in the image are this environment's `python -m ringleader` and `python`. A pod's address is a loopback
address of its own, its mounted token a kubeconfig with a token of the same ServiceAccount. Everything else
(arguments, environment, ports, probes, grace period) is what the API server holds.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.children import Child, start_child
from ringleader.testing.containers import Images, environment_of

ROOT = Path(__file__).parents[2]
Doc = dict[str, Any]
PROGRAMS = {"ringleader": [sys.executable, "-m", "ringleader"], "python": [sys.executable]}


def image_entrypoint() -> list[str]:
    """ENTRYPOINT of the image that the chart runs."""
    containerfile = (ROOT / "manifests" / "Containerfile").read_text()
    (found,) = re.findall(r"^ENTRYPOINT (\[.*\])$", containerfile, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def pod_of(workload: Doc, name: str) -> Doc:
    """The pod *name* of a Deployment or StatefulSet."""
    template = workload["spec"]["template"]
    meta = {**template["metadata"], "name": name, "namespace": workload["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A running pod: its one container as a process."""

    pod: Doc
    address: str
    kubeconfig: Path
    child: Child

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def container(self) -> Doc:
        container: Doc = self.pod["spec"]["containers"][0]
        return container

    def log(self) -> str:
        return self.child.log.read_text()

    async def probe(self, kind: str) -> int:
        """Status of its `livenessProbe` or `readinessProbe`; 0 while nobody listens."""
        http = self.container[kind]["httpGet"]
        status, _ = await self._get(self._port(http["port"]), http["path"])
        return status

    async def metrics(self, service: Doc) -> str:
        """What a scrape through *service* would read from this pod."""
        (port,) = service["spec"]["ports"]
        target = port.get("targetPort", port["port"])
        status, text = await self._get(self._port(target), "/metrics")
        assert status == 200, text
        return text

    async def stop(self) -> int:
        """Ask it to end as a kubelet does; its exit code, or the kill's."""
        await self.child.end(grace_s=self.pod["spec"]["terminationGracePeriodSeconds"])
        return await self.child.wait()

    def _port(self, port: int | str) -> int:
        by_name = {entry.get("name"): entry["containerPort"] for entry in self.container["ports"]}
        return port if isinstance(port, int) else int(by_name[port])

    async def _get(self, port: int, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            try:
                async with session.get(f"http://{self.address}:{port}{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                return 0, ""


def images() -> Images:
    """This checkout in place of images."""
    return Images(programs=PROGRAMS, entrypoint=image_entrypoint())


def command_of(container: Doc, environment: Mapping[str, str], *, address: str) -> list[str]:
    """The container's command line in this checkout. An address without a host is the pod's own."""
    return images().command(container, environment, address=address)


async def start_pod(pod: Doc, *, kubeconfig: Path, directory: Path, address: str) -> PodProcess:
    """Start *pod* with nothing in its environment but what the pod says, a search path and its identity."""
    (container,) = pod["spec"]["containers"]
    environment = environment_of(pod, container)
    outside = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(directory)}
    settings = [f"{name}={value}" for name, value in {**outside, **environment}.items()]
    command = command_of(container, environment, address=address)
    name = pod["metadata"]["name"]
    log = directory / f"{name}-{pod['metadata']['uid'][:8]}.log"
    with log.open("a") as file:
        file.write(f"{shlex.join(command)}\n")
    child = await start_child(["/usr/bin/env", "-i", *settings, *command], name=name, log=log)
    return PodProcess(pod, address, kubeconfig, child)
