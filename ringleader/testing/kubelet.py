"""Process kubelet: a node whose pods are local processes, for tests of workloads without root, images or a scheduler.

It binds pods to its node, runs their containers with a token of the pod, probes them, writes their status, and ends
and deletes them. The real controllers of Deployments and StatefulSets do the rest. An emptyDir is a folder of this
machine, where the words of a command name it. Not there: other volumes, limits, a network of the pods (each has a
loopback address of its own).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Never

import aiohttp
import structlog
import yaml

from devcluster.children import Child, start_child
from kubeio.clock import Clock, SystemClock
from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.container_process import ContainerProcess, KubeletTiming, now
from ringleader.testing.containers import Images, PodError, environment_of, mounts_of, probe_of

log = structlog.get_logger("kubelet")

PODS = ApiResource("", "v1", "pods", "Pod")
NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
TOKEN_LASTS_S = 86_400
_MERGE = "application/merge-patch+json"
_KINDS = ("startupProbe", "readinessProbe", "livenessProbe")
_FAILURES = (RequestFailedError, aiohttp.ClientError, TimeoutError)


@asynccontextmanager
async def process_kubelet(
    kubeconfig: Path,
    directory: Path,
    *,
    images: Images | None = None,
    node: str = "node-1",
    timing: KubeletTiming | None = None,
) -> AsyncIterator[Kubelet]:
    """A kubelet that acts with *kubeconfig*, with its pods' files in *directory*; every process ends with the block."""
    async with IndependentClient(kubeconfig) as client:
        kubelet = Kubelet(
            client,
            kubeconfig,
            directory,
            images=images or Images(),
            node=node,
            timing=timing or KubeletTiming(),
        )
        await kubelet.register()
        running = asyncio.create_task(kubelet.run(), name=f"kubelet {node}")
        try:
            yield kubelet
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await kubelet.close()


class Kubelet:
    """A node and the pods on it, by uid."""

    def __init__(
        self,
        client: IndependentClient,
        kubeconfig: Path,
        directory: Path,
        *,
        images: Images,
        node: str,
        timing: KubeletTiming,
    ) -> None:
        self.node = node
        self.pods: dict[str, PodProcesses] = {}
        self.ended: list[PodProcesses] = []
        """Pods that were deleted, with their logs."""
        self.client = client
        self.images = images
        self.timing = timing
        self.clock: Clock = SystemClock()
        self.directory = directory
        self.cluster: Doc = _cluster_of(kubeconfig)
        self._rng = random.Random()  # noqa: S311 - addresses, no secrets

    async def register(self) -> None:
        """Create the Node."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        await self.client.create_if_absent(NODES, body)

    async def run(self) -> Never:
        """Follow the pods until cancelled; while the API server is away they go on."""
        while True:
            try:
                await self._follow(await self.client.list_all(PODS))
            except _FAILURES as error:
                log.warning("pods not read", error=str(error))
            await asyncio.sleep(self.timing.poll_s)

    def named(self, name: str) -> PodProcesses | None:
        """The pod *name*, as long as a process of it may run."""
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    async def close(self) -> None:
        """End every process at once."""
        await asyncio.gather(*(pod.kill() for pod in self.pods.values()))

    async def _follow(self, found: list[Doc]) -> None:
        for doc in found:
            meta = doc["metadata"]
            if not doc["spec"].get("nodeName"):
                await self._bind(meta)
            elif doc["spec"]["nodeName"] == self.node:
                pod = self.pods.get(meta["uid"])
                if pod is None:
                    pod = self.pods[meta["uid"]] = PodProcesses(self, doc, address=pod_address(self._rng))
                    pod.start()
                if meta.get("deletionTimestamp"):
                    pod.terminate(float(meta.get("deletionGracePeriodSeconds") or 0))
        there = {doc["metadata"]["uid"] for doc in found}
        for uid in self.pods.keys() - there:
            await self.pods[uid].kill()
            self.ended.append(self.pods.pop(uid))

    async def _bind(self, meta: Doc) -> None:
        path = PODS.path(namespace=meta["namespace"], name=meta["name"]) + "/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
        try:
            await self.client.request("POST", path, body=body)
        except RequestFailedError as error:
            log.info("pod not bound", pod=meta["name"], error=str(error))


class PodProcesses:
    """One pod on the node: its containers as processes, its status, its end."""

    def __init__(self, kubelet: Kubelet, doc: Doc, *, address: str) -> None:
        self.doc = doc
        self.name = str(doc["metadata"]["name"])
        self.address = address
        self.directory = kubelet.directory / f"{self.name}-{doc['metadata']['uid'][:8]}"
        self.containers: list[ContainerProcess] = []
        self._inits: list[ContainerProcess] = []
        """Init containers that were started."""
        self._kubelet = kubelet
        self._changed = asyncio.Event()
        self._began = now()
        self._ready_since = self._began
        self._was_ready = False
        self._ending = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Run its containers, beside the caller."""
        self._tasks.append(asyncio.create_task(self._run(), name=f"pod {self.name}"))

    def terminate(self, grace_s: float) -> None:
        """SIGTERM, SIGKILL after *grace_s*, then the pod is deleted; once."""
        if not self._ending:
            self._ending = True
            self._tasks.append(asyncio.create_task(self._terminate(grace_s), name=f"end of pod {self.name}"))

    async def kill(self) -> None:
        """End its processes at once."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.end(grace_s=0) for each in (*self._inits, *self.containers)))

    def log(self) -> str:
        """What its containers printed."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))

    async def _run(self) -> None:
        await self._prepare()
        await self._initialize()
        self.containers = [self._container(spec) for spec in self.doc["spec"]["containers"]]
        async with asyncio.TaskGroup() as group:
            for container in self.containers:
                group.create_task(container.run(), name=f"container {self.name}/{container.name}")
            group.create_task(self._report(), name=f"status of {self.name}")

    async def _prepare(self) -> None:
        """Make the files of the account and the containers; a pod that cannot be run waits and says why."""
        self.directory.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                await self._write_account()
                for spec in (*self.doc["spec"].get("initContainers", []), *self.doc["spec"]["containers"]):
                    self._container(spec)
            except (*_FAILURES, PodError) as error:
                await self._patch({"phase": "Pending", "message": str(error)})
                await asyncio.sleep(1.0)
            else:
                return

    async def _initialize(self) -> None:
        """Run the init containers, one after the other, each until it succeeds."""
        for spec in self.doc["spec"].get("initContainers", []):
            while True:
                container = self._container(spec, is_init=True)
                self._inits.append(container)
                await container.run()
                if not container.exit_code or self._ending:
                    break
                told = f"init container {container.name} ended with {container.exit_code}"
                await self._patch({"phase": "Pending", "message": told})
                await asyncio.sleep(self._kubelet.timing.backoff_s)

    def _container(self, spec: Doc, *, is_init: bool = False) -> ContainerProcess:
        """The container of *spec*, not started. Raises: PodError."""
        kubelet, timing = self._kubelet, self._kubelet.timing
        policy = self.doc["spec"].get("restartPolicy", "Always")
        if policy == "OnFailure":
            raise PodError("restartPolicy: OnFailure is not supported")
        environment = environment_of(self.doc, spec, address=self.address)
        if is_init and spec.get("restartPolicy"):
            raise PodError(f"init container {spec['name']}: restartPolicy is not supported")
        mounts = mounts_of(self.doc, spec, self.directory / "volumes")
        for folder in mounts.values():
            folder.mkdir(parents=True, exist_ok=True)
        command = kubelet.images.command(spec, environment, address=self.address, mounts=mounts)
        outside = {"PATH": os.environ["PATH"], "HOME": str(self.directory)}
        outside["KUBECONFIG"] = str(self.directory / "kubeconfig")
        settings = [f"{name}={value}" for name, value in {**outside, **environment}.items()]
        path = self.directory / f"{spec['name']}.log"

        async def start() -> Child:
            with path.open("a") as file:
                file.write(f"{shlex.join(command)}\n")
            return await start_child(["/usr/bin/env", "-i", *settings, *command], name=self.name, log=path)

        probes = {
            kind: probe_of(spec, kind, address=self.address, longest_period_s=timing.probe_period_s)
            for kind in _KINDS
        }
        grace_s = float(self.doc["spec"].get("terminationGracePeriodSeconds", 30))
        return ContainerProcess(
            spec,
            start,
            probes,
            grace_s=grace_s,
            timing=timing,
            clock=kubelet.clock,
            changed=self._changed.set,
            is_restarted=policy == "Always" and not is_init,
        )

    async def _write_account(self) -> None:
        """Files of the pod's ServiceAccount, as they are mounted into pods, and a kubeconfig that names them.

        A pod without an account gets none.
        """
        meta, account = self.doc["metadata"], self.doc["spec"].get("serviceAccountName")
        if not account:
            return
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LASTS_S, "boundObjectRef": bound},
        }
        path = ACCOUNTS.path(namespace=meta["namespace"], name=account) + "/token"
        answer = await self._kubelet.client.request("POST", path, body=request)
        token = self.directory / "token"
        token.touch(mode=0o600)
        token.write_text(answer["status"]["token"])
        (self.directory / "namespace").write_text(meta["namespace"])
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "pod", "cluster": self._kubelet.cluster}],
            "users": [{"name": account, "user": {"tokenFile": str(token)}}],
            "contexts": [
                {
                    "name": "pod",
                    "context": {"cluster": "pod", "user": account, "namespace": meta["namespace"]},
                }
            ],
            "current-context": "pod",
        }
        (self.directory / "kubeconfig").write_text(json.dumps(document))

    async def _report(self) -> Never:
        """Write the status after each change."""
        while True:
            self._changed.clear()
            await self._patch(self._status())
            await self._changed.wait()

    def _status(self) -> Doc:
        is_ready = all(each.is_ready for each in self.containers)
        if is_ready is not self._was_ready:
            self._was_ready, self._ready_since = is_ready, now()
        met = {"PodScheduled": True, "Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
        return {
            "phase": self._phase(),
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._began,
            "conditions": [
                {
                    "type": kind,
                    "status": str(is_met),
                    "lastTransitionTime": self._ready_since if kind.endswith("Ready") else self._began,
                }
                for kind, is_met in met.items()
            ],
            "containerStatuses": [each.status() for each in self.containers],
        }

    def _phase(self) -> str:
        if self._ending or not self.containers or not all(each.is_over for each in self.containers):
            return "Running"
        return "Failed" if any(each.exit_code for each in self.containers) else "Succeeded"

    async def _patch(self, status: Doc) -> None:
        """Write *status*, again and again until it is written or the pod is gone."""
        path = PODS.path(namespace=self.doc["metadata"]["namespace"], name=self.name) + "/status"
        body = {"metadata": {"uid": self.doc["metadata"]["uid"]}, "status": status}
        while True:
            try:
                await self._kubelet.client.request("PATCH", path, body=body, content_type=_MERGE)
            except RequestFailedError as error:
                if error.status < 500:
                    log.info("status not written", pod=self.name, error=str(error))
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(self._kubelet.timing.poll_s)

    async def _terminate(self, grace_s: float) -> None:
        await asyncio.gather(*(each.end(grace_s=grace_s) for each in (*self._inits, *self.containers)))
        for task in self._tasks[:1]:
            task.cancel()
        await asyncio.gather(*self._tasks[:1], return_exceptions=True)
        await asyncio.gather(*(each.end(grace_s=0) for each in (*self._inits, *self.containers)))
        if self.containers:
            await self._patch(self._status())
        path = PODS.path(namespace=self.doc["metadata"]["namespace"], name=self.name)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.doc["metadata"]["uid"]}}
        while True:
            try:
                await self._kubelet.client.request("DELETE", path, body=body)
            except RequestFailedError as error:
                if error.status in (404, 409):
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(self._kubelet.timing.poll_s)


def pod_address(rng: random.Random) -> str:
    """A loopback address that hardly any other process uses: pods share no ports."""
    return f"127.{rng.randrange(64, 128)}.{rng.randrange(1, 255)}.{rng.randrange(1, 255)}"


def _cluster_of(kubeconfig: Path) -> dict[str, Any]:
    """Server and certificate authority in *kubeconfig*."""
    config = yaml.safe_load(kubeconfig.read_text())
    (cluster,) = (entry["cluster"] for entry in config["clusters"])
    return dict(cluster)
