"""Argo Rollouts' controllers behind proxies roll 40 Rollouts, while one is killed and one joins (`make rollouts`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.etcd_watch import STORES_JSON
from kubeio.resource import CRDS, NAMESPACES
from ringleader.testing.client import MERGE_PATCH, IndependentClient
from ringleader.testing.unmodified.fleet import NAMESPACE, ProxyFleet, ProxyFleetSpec, open_proxy_fleet
from ringleader.testing.unmodified.foreign import judge_writes
from ringleader.testing.unmodified.rings import JOBS, PODS, REPLICA_SETS, proxy_command
from ringleader.testing.unmodified.templates import template
from tests.proxy.argo_rollouts import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    ROLLOUTS,
    analysis_template,
    command,
    definitions,
    find_program,
    ring,
    rollout,
)
from tests.proxy.learn.learning import learn, until

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
        spec = ProxyFleetSpec(ring=ring(program))
        async with open_proxy_fleet(plane, tmp_path / "fleet", spec=spec) as fleet:
            await fleet.start_sharder()
            for _ in range(2):
                await fleet.add()
            await create_rollouts(fleet)
            await fleet.wait_for("two share", fleet.is_shared)
            await fleet.wait_settled()
            await roll(fleet, version=1)
            await fleet.wait_for("a quarter rolls", lambda: replica_sets(fleet) >= NUMBER * 5 // 4)
            await fleet.add()
            fleet.kill("rollouts-0")
            await fleet.wait_for("two share anew", fleet.is_shared)
            assert set(fleet.owners()) == {"rollouts-1", "rollouts-2"}
            await fleet.wait_settled(quiet_s=3)
            await judge(fleet)
            report = judge_writes(plane.writes(), fleet.workloads, fleet.places)
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


@pytest.mark.timeout(300)
async def test_learn_mode_finds_the_ring_and_the_command_line(program: Path, tmp_path: Path) -> None:
    """Those that the test above runs with."""
    beside = ("replicaset-controller", "job-controller")
    async with (
        real_plane(tmp_path / "plane", controllers=beside) as plane,
        IndependentClient(await plane.kubeconfig_for("user")) as user,
    ):
        for definition in definitions():
            await user.create(CRDS, definition)
        await user.create(NAMESPACES, {"metadata": {"name": "argo-rollouts"}})  # its Lease is there

        async def is_at(phase: str, version: int) -> bool:
            await make_ready(user)
            found = await user.get(ROLLOUTS, "learned", namespace="default")
            status = found.get("status", {})
            generation: int = found["metadata"]["generation"]
            is_looked_at: bool = status.get("observedGeneration") == str(generation)
            return is_looked_at and status.get("phase") == phase and generation > version

        async def work() -> None:
            await user.create(ANALYSIS_TEMPLATES, analysis_template("ask"), namespace="default")
            document = rollout("learned", replicas=2, analysis="ask")
            created = await user.create(ROLLOUTS, document, namespace="default")
            await until(lambda: is_at("Healthy", 0))
            change = {"spec": {"template": template("learned", version=1)}}
            await user.merge(ROLLOUTS, "learned", change, namespace="default")
            await until(lambda: is_at("Healthy", created["metadata"]["generation"]))

        report = await learn(plane.kubeconfig, command(program), work)
    wanted = ring(program)
    assert (report["verdict"], report["classes"]) == ("yes, with care", ["A", "G"])
    for field in ("key", "resources", "maxInFlight", "maxInFlightPerOwner"):
        assert report["ring"]["spec"][field] == wanted.manifest()["spec"][field]
    words = report["command"]
    by_hand = proxy_command(wanted, member="a", kubeconfig=plane.kubeconfig, manager=program, lease_s=5)
    for flag in ("--ring", "--leaves", "--locks"):
        assert words[words.index(flag) + 1] == by_hand[by_hand.index(flag) + 1]
    assert words[words.index("--") + 1 :] == command(program)


async def make_ready(user: IndependentClient) -> None:
    """Play the kubelet once."""
    ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
    running = {"phase": "Running", "conditions": ready}
    for pod in await user.list_all(PODS):
        if pod["status"].get("phase") == "Pending":
            is_job = pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
            path = PODS.path(namespace="default", name=pod["metadata"]["name"]) + "/status"
            status = {"phase": "Succeeded"} if is_job else running
            await user.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)
