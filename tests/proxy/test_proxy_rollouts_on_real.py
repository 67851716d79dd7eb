"""Argo Rollouts' controllers behind proxies roll 40 Rollouts, while one is killed and one joins (`make rollouts`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.etcd_watch import STORES_JSON
from kubeio.resource import CRDS
from ringleader.testing.client import IndependentClient
from ringleader.testing.unmodified.fleet import NAMESPACE, ProxyFleet, ProxyFleetSpec, open_proxy_fleet
from ringleader.testing.unmodified.foreign import judge_writes
from ringleader.testing.unmodified.rings import JOBS, REPLICA_SETS
from ringleader.testing.unmodified.templates import template
from tests.proxy.argo_rollouts import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    ROLLOUTS,
    analysis_template,
    definitions,
    find_program,
    ring,
    rollout,
)

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

NUMBER, PODS_EACH, ANALYZED = 40, 2, 8
NAMES = [f"web-{number}" for number in range(NUMBER)]


@pytest.fixture
def program() -> Path:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
        return find_program()
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.timeout(300)
async def test_every_template_of_a_rollout_gets_one_replica_set(program: Path, tmp_path: Path) -> None:
    """A fifth of the Rollouts asks an AnalysisRun in the middle, which asks a Job: a tree of three levels."""
    rollouts = ring(program)
    groups = ("argoproj.io", "apps", "batch")
    beside = ("replicaset-controller", "job-controller")  # kube-controller-manager's, unsharded
    async with real_plane(
        tmp_path / "plane",
        audit=True,
        audited_groups=groups,
        controllers=beside,
        apiserver_flags=[STORES_JSON],
    ) as plane:
        async with IndependentClient(await plane.kubeconfig_for("user")) as user:
            for definition in definitions():
                await user.create(CRDS, definition)
        spec = ProxyFleetSpec(rings=(rollouts,))
        async with open_proxy_fleet(plane, tmp_path / "fleet", spec=spec) as fleet:
            await fleet.start_sharder()
            for _ in range(2):
                await fleet.add(rollouts)
            await create_rollouts(fleet)
            await fleet.wait_for("two share", lambda: fleet.is_shared(rollouts))
            await fleet.wait_settled()
            await roll(fleet, version=1)
            await fleet.wait_for("a quarter rolls", lambda: replica_sets(fleet) >= NUMBER * 5 // 4)
            await fleet.add(rollouts)
            fleet.kill("rollouts-0")
            await fleet.wait_for("two share anew", lambda: fleet.is_shared(rollouts))
            assert set(fleet.owners(rollouts)) == {"rollouts-1", "rollouts-2"}
            await fleet.wait_settled(quiet_s=3)
            await judge(fleet)
            report = judge_writes(plane.writes(), fleet.workloads, fleet.ring_of)
            assert report.foreign == []
            assert report.accepted > NUMBER * 4
            await fleet.stop()
            assert fleet.failures() == []


async def create_rollouts(fleet: ProxyFleet) -> None:
    await fleet.client.create(ANALYSIS_TEMPLATES, analysis_template("ask"), namespace=NAMESPACE)
    for number, name in enumerate(NAMES):
        document = rollout(name, replicas=PODS_EACH, analysis="ask" if number < ANALYZED else "")
        await fleet.client.create(ROLLOUTS, document, namespace=NAMESPACE)


async def roll(fleet: ProxyFleet, *, version: int) -> None:
    for name in NAMES:
        change = {"spec": {"template": template(name, version=version)}}
        await fleet.client.merge(ROLLOUTS, name, change, namespace=NAMESPACE)


def replica_sets(fleet: ProxyFleet) -> int:
    """Those that ever were."""
    return len(fleet.workloads.deployments.replica_sets)


async def judge(fleet: ProxyFleet) -> None:
    """At rest every Rollout is healthy, with one ReplicaSet for each of its two templates."""
    assert fleet.workloads.findings == []
    assert replica_sets(fleet) == len(await fleet.client.list_all(REPLICA_SETS)) == 2 * NUMBER
    found = await fleet.client.list_all(ROLLOUTS)
    assert [each["status"]["phase"] for each in found] == ["Healthy"] * NUMBER
    assert (
        len(await fleet.client.list_all(ANALYSIS_RUNS)) == len(await fleet.client.list_all(JOBS)) == ANALYZED
    )
