"""The real HorizontalPodAutoscaler follows the number: more objects, more replicas; fewer objects, fewer replicas.

Real: kube-apiserver, the autoscaler's controller, Prometheus with the chart's rules, the chart's StatefulSet and
HorizontalPodAutoscaler, a fleet of processes that leave. There is no kubelet: this module starts and ends one process
of the fleet for each replica of the StatefulSet. Rules run 12 times faster than in production, windows last seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.children import start_child
from devcluster.real.real_plane import RealPlane
from kubeio.resource import ApiResource
from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from tests.chart.external_metrics import external_metrics
from tests.chart.helm import Helm
from tests.chart.manifests import kinds
from tests.chart.prometheus import Prometheus, prometheus, wait_until
from tests.chart.test_chart_scaling import HPA, STATEFULSETS, values

pytestmark = [
    pytest.mark.real,
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

Doc = dict[str, Any]
NAME = "websites"
AUTOSCALERS = ApiResource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
WITHIN_S = 180
HOLD_S = 120
"""Objects of a replica that is scaled down without leaving would wait so long."""
GRACE_S = 60
FASTER = 12
"""Converged for 10 s releases the number: longer than replicas take to report their objects in their Leases."""
QUICK: Doc = {
    "scaleUp": {
        "stabilizationWindowSeconds": 4,
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 4}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 8,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 4}],
    },
}
"""Windows and periods of a test; tolerance and the rest are the chart's."""


class Replicas:
    """Processes of a fleet in the place of a StatefulSet's pods; `history` has each number that was asked for."""

    def __init__(self, fleet: Fleet, admin: IndependentClient, server: Prometheus) -> None:
        self._fleet = fleet
        self._admin = admin
        self._server = server
        self.running: list[str] = []
        self.history: list[int] = []

    async def follow(self) -> None:
        """Start and end one process at a time, until cancelled."""
        while True:
            wanted = (await self.stateful())["spec"]["replicas"]
            if not self.history or self.history[-1] != wanted:
                self.history.append(wanted)
            if len(self.running) < wanted:
                name = f"{NAME}-{len(self.running)}"
                await self._fleet.add_member(name)
                await self._fleet.wait_up()
                self.running.append(name)
            elif len(self.running) > wanted:
                leaver = self._fleet.members[self.running.pop()]
                await leaver.stop(grace_s=GRACE_S)
                assert leaver.exits[-1].code == 0, leaver.log.read_text()
            else:
                await asyncio.sleep(0.5)
                continue
            self._scrape()
            status = {"status": {"replicas": len(self.running)}}
            path = STATEFULSETS.path(namespace=self._fleet.spec.namespace, name=NAME, subresource="status")
            await self._admin.request("PATCH", path, body=status, content_type="application/merge-patch+json")

    async def stateful(self) -> Doc:
        return await self._admin.get(STATEFULSETS, NAME, namespace=self._fleet.spec.namespace)

    def _scrape(self) -> None:
        names = [*self._fleet.sharders, *self.running]
        ports = [(self._fleet.directory / f"{name}.port").read_text().strip() for name in names]
        self._server.scrape(f"127.0.0.1:{port}" for port in ports)


@asynccontextmanager
async def autoscaler(plane: RealPlane, directory: Path) -> AsyncIterator[None]:
    """The real controller, which looks every two seconds."""
    command = [
        str(plane.binary("kube-controller-manager")),
        f"--kubeconfig={plane.kubeconfig}",
        "--controllers=horizontal-pod-autoscaler-controller",
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    child = await start_child(command, name="autoscaler", log=directory / "autoscaler.log")
    try:
        yield
    finally:
        await child.end(grace_s=5)


@asynccontextmanager
async def following(replicas: Replicas) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(replicas.follow(), name="replicas follow")
        yield
        task.cancel()


async def test_replicas_follow_the_number_up_and_down(
    plane: RealPlane, admin: IndependentClient, renderer: Helm, tmp_path: Path
) -> None:
    spec = FleetSpec(
        lease_s=5,
        settle_s=1,
        environment={"POD_NAMESPACE": FleetSpec().namespace},
        shard_flags=("--hold", "--termination-grace-period", f"{GRACE_S}s"),
        ring_spec={"holdSeconds": HOLD_S},
    )
    scaling = {**HPA, "max": 6, "objectsPerReplica": 15}
    monitored = {**values(scaling), "monitoring": {"rules": {"enabled": True}}}
    objects = await renderer.template(monitored, namespace=spec.namespace)
    rules = {
        f"{rule['metadata']['name']}.yaml": yaml.safe_dump(rule["spec"])
        for rule in kinds(objects, "PrometheusRule")
    }
    assert len(rules) == 2
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(open_fleet(plane, tmp_path / "fleet", spec=spec))
        server = await stack.enter_async_context(prometheus(tmp_path, rules, faster=FASTER))
        await stack.enter_async_context(external_metrics(admin, server))
        await fleet.start(replicas=0)
        refs = await fleet.objects.create_many(20)
        (stateful,), (hpa,) = kinds(objects, "StatefulSet"), kinds(objects, "HorizontalPodAutoscaler")
        hpa["spec"]["behavior"] = {
            way: {**rules_of, **QUICK[way]} for way, rules_of in hpa["spec"]["behavior"].items()
        }
        await admin.create(STATEFULSETS, stateful, namespace=spec.namespace)
        await admin.create(AUTOSCALERS, hpa, namespace=spec.namespace)
        replicas = Replicas(fleet, admin, server)
        await stack.enter_async_context(following(replicas))
        await stack.enter_async_context(autoscaler(plane, tmp_path))

        settled = settling(fleet, replicas, server)
        await settled("from the 1 of a new StatefulSet to min", 2)
        refs += await fleet.objects.create_many(40, prefix="more")
        await settled("up", 4)
        for ref in refs[20:]:
            await admin.delete(ref.resource, ref.name, namespace=spec.namespace)
        await settled("down", 2)
        assert_turns(replicas.history)
        assert replicas.running == ["websites-0", "websites-1"]
        evidence = fleet.evidence()
        assert evidence.overlaps == []
        assert evidence.foreign_writes == []
        gap = evidence.longest_unattended
        assert gap is None or gap.length_s < HOLD_S / 4, gap
        if gap is not None:
            print(f"longest time without a worker: {gap.length_s:.1f} s")


def settling(fleet: Fleet, replicas: Replicas, server: Prometheus) -> Callable[[str, int], Awaitable[None]]:
    async def settled(what: str, count: int) -> None:
        async def is_so() -> bool | str:
            found = await server.query("ringleader:replicas:wanted")
            number = {sample["value"][1] for sample in found}
            is_there = number == {str(count)} and len(replicas.running) == count
            return is_there or f"wanted {number}, running {replicas.running}, asked {replicas.history}"

        await wait_until(what, is_so, within_s=WITHIN_S)
        await fleet.wait_converged(within_s=WITHIN_S)

    return settled


def assert_turns(history: list[int]) -> None:
    """*history* goes up to its highest number and then down: nothing flaps."""
    top = history.index(max(history))
    assert history[: top + 1] == sorted(history[: top + 1])
    assert history[top:] == sorted(history[top:], reverse=True)
    assert max(history) == 4
