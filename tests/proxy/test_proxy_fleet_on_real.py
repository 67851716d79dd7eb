"""Unmodified kube-controller-managers share Deployments on a real kube-apiserver, while one joins and one is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.etcd_watch import STORES_JSON
from devcluster.real.real_plane import RealPlane
from ringleader.testing.unmodified.fleet import open_proxy_fleet

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

NUMBER, PODS_EACH = 12, 3


async def checked(plane: RealPlane) -> list[str]:
    """What `ringleader check` finds wrong with ring, replicas and fence; this plane has no guard."""
    command = ("-m", "ringleader", "check", "-o", "json", "--kubeconfig", str(plane.kubeconfig))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=-1)
    output, _ = await process.communicate()
    found = [each for each in json.loads(output)["findings"] if each["level"] in ("error", "warning")]
    return [str(each) for each in found if each["check"] not in ("guard", "flowschema")]


@pytest.mark.timeout(300)
async def test_three_of_them_make_no_pod_too_many(tmp_path: Path) -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    names = [f"web-{number}" for number in range(NUMBER)]
    async with (
        real_plane(tmp_path / "plane", apiserver_flags=[STORES_JSON]) as plane,
        open_proxy_fleet(plane, tmp_path / "fleet") as fleet,
    ):
        workloads = fleet.workloads
        await fleet.start_sharder()
        for _ in range(2):
            await fleet.add()
        await fleet.create_deployments(names, replicas=PODS_EACH)
        await fleet.wait_for("two share", fleet.is_shared)
        await fleet.wait_settled()
        assert workloads.pods_made == NUMBER * PODS_EACH
        await fleet.add()
        await fleet.wait_for("three share", fleet.is_shared)
        assert await checked(plane) == []
        fleet.kill("deployments-0")
        await fleet.wait_for("two are left", fleet.is_shared)
        assert sorted(fleet.owners()) == ["deployments-1", "deployments-2"]
        await fleet.wait_settled(quiet_s=12)  # what arrived has become visible in a restart
        assert workloads.pods_made == NUMBER * PODS_EACH

        for name in names:  # every one of them is worked on
            await fleet.patch_deployment(name, {"replicas": PODS_EACH + 1})
        await fleet.wait_for("one pod more each", lambda: workloads.pods_made >= NUMBER * (PODS_EACH + 1))
        await fleet.wait_settled(quiet_s=3)
        assert workloads.pods_made == NUMBER * (PODS_EACH + 1)
        assert workloads.deployments.missed() == 0
        assert workloads.findings == []
        await fleet.stop()
        assert fleet.failures() == []
