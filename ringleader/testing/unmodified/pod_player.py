"""Plays the kubelets: a pod becomes ready a moment after it appears, and a Job's pod ends.

Pods are never bound to a node, so the API server deletes them at once, without a kubelet.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from ringleader.testing.client import MERGE_PATCH, IndependentClient, RequestFailedError
from ringleader.testing.unmodified.objects import FAILURES, Workload
from ringleader.testing.unmodified.rings import PODS

_DELAY_S: Final = (0.1, 1.0)
_AGAIN_S: Final = 0.5
_AT_ONCE: Final = 16


class PodPlayer:
    """Writes the status of pods, in tasks of *tasks*."""

    def __init__(self, client: IndependentClient, *, tasks: asyncio.TaskGroup, rng: random.Random) -> None:
        self._client: Final = client
        self._tasks: Final = tasks
        self._rng: Final = rng
        self._slots: Final = asyncio.Semaphore(_AT_ONCE)
        self._seen: Final[set[str]] = set()
        self._of_job: Final[Counter[str]] = Counter()

    def see(self, pod: Workload) -> None:
        """A version of *pod*: its first one starts it."""
        if pod.uid in self._seen or pod.is_ending:
            return
        self._seen.add(pod.uid)
        status = self._status(pod)
        delay_s = self._rng.uniform(*_DELAY_S)
        self._tasks.create_task(self._write(pod, status, delay_s), name=f"pod {pod.name}")

    def _status(self, pod: Workload) -> dict[str, Any]:
        """The first pods of a Job fail, as many as its template's label says; the others complete."""
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "Job":
            self._of_job[owner.uid] += 1
            fails = self._of_job[owner.uid] <= int(pod.metadata.labels.get(FAILURES, "0"))
            return {"phase": "Failed" if fails else "Succeeded"}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ]
        return {"phase": "Running", "startTime": now, "conditions": ready}

    async def _write(self, pod: Workload, status: dict[str, Any], delay_s: float) -> None:
        """Write it until it is written, or the pod is gone."""
        await asyncio.sleep(delay_s)
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.name) + "/status"
        body = {"metadata": {"uid": pod.uid}, "status": status}
        while True:
            try:
                async with self._slots:
                    await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            except RequestFailedError as error:
                if error.status in (404, 409):
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(_AGAIN_S)
