"""What users do meanwhile: rollouts, scaling and new Jobs, at a steady rate, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Final, Never

import aiohttp

from kubeio.resource import ApiResource
from ringleader.testing.client import RequestFailedError
from ringleader.testing.unmodified.fleet import NAMESPACE, ProxyFleet
from ringleader.testing.unmodified.rings import DEPLOYMENTS, JOBS, STATEFUL_SETS
from ringleader.testing.unmodified.templates import job, stateful_set, template

_NO_ANSWER: Final = (RequestFailedError, aiohttp.ClientError, TimeoutError)
_MOST_REPLICAS: Final = 5


class Changes:
    """Changes the workloads of *fleet* while `allowed` is set."""

    def __init__(self, fleet: ProxyFleet, *, seed: int, per_s: float) -> None:
        self.allowed: Final = asyncio.Event()
        self.done: Final[Counter[str]] = Counter()
        self._fleet: Final = fleet
        self._rng: Final = random.Random(f"changes {seed}")
        self._per_s: Final = per_s
        self._names: Final[dict[ApiResource, list[str]]] = {DEPLOYMENTS: [], STATEFUL_SETS: []}
        self._versions: Final[Counter[str]] = Counter()
        self._jobs = 0

    async def create(self, *, deployments: int, stateful_sets: int) -> None:
        """Create what is changed later."""
        names = [f"web-{number}" for number in range(deployments)]
        await self._fleet.create_deployments(names, replicas=2)
        for number in range(stateful_sets):
            name = f"db-{number}"
            document = stateful_set(name, replicas=2)
            await self._fleet.client.create(STATEFUL_SETS, document, namespace=NAMESPACE)
            self._names[STATEFUL_SETS].append(name)
        self._names[DEPLOYMENTS] += names

    async def run(self) -> Never:
        """Change something again and again; what gets no answer may have been done."""
        while True:
            await self.allowed.wait()
            try:
                await self._change()
            except _NO_ANSWER:
                self.done["unanswered"] += 1
            await asyncio.sleep(self._rng.expovariate(self._per_s))

    async def scale_up(self, names: list[str]) -> None:
        """One replica more for each of these Deployments. Raises what a request raises."""
        counts = self._fleet.workloads.deployments.deployments.values()
        replicas = {count.now.name: count.now.spec.replicas for count in counts}
        for name in names:
            await self._fleet.patch_deployment(name, {"replicas": replicas[name] + 1})

    def deployments(self, number: int) -> list[str]:
        """So many Deployments at random, all of them if there are fewer."""
        names = self._names[DEPLOYMENTS]
        return self._rng.sample(names, min(number, len(names)))

    async def _change(self) -> None:
        draw = self._rng.random()
        if draw < 0.15:
            await self._create_job()
        elif draw < 0.35:
            await self._patch(STATEFUL_SETS, fewest=1)
        else:
            await self._patch(DEPLOYMENTS, fewest=0)

    async def _patch(self, resource: ApiResource, *, fewest: int) -> None:
        name = self._rng.choice(self._names[resource])
        what = self._rng.choice(("rollout", "rollout", "scale", "scale", "both"))
        change: dict[str, Any] = {}
        if what != "scale":
            self._versions[name] += 1
            change["template"] = template(name, version=self._versions[name])
        if what != "rollout":
            change["replicas"] = self._rng.randint(fewest, _MOST_REPLICAS)
        self.done[f"{resource.kind} {what}"] += 1
        await self._fleet.client.merge(resource, name, {"spec": change}, namespace=NAMESPACE)

    async def _create_job(self) -> None:
        rng = self._rng
        self._jobs += 1
        completions = rng.randint(1, 6)
        document = job(
            f"task-{self._jobs}",
            completions=completions,
            parallelism=rng.randint(1, completions),
            failures=rng.choice((0, 0, 1)),
        )
        self.done["Job"] += 1
        await self._fleet.client.create(JOBS, document, namespace=NAMESPACE)
