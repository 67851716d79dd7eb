"""The first section of docs/operate.md, done as it stands there: with Helm and kubectl on a cluster that has nothing.

Images cannot be pulled here: the process kubelet runs the pods.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import find_binaries
from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from ringleader.assets import website_controller
from ringleader.testing.client import IndependentClient
from ringleader.testing.single_task import single_task
from scripts.document import Block, blocks_of
from tests.chart.helm import ROOT
from tests.chart.running_pods import DEPLOYMENTS, STATEFULSETS, eventually, running_pods
from tests.chart.websites import KEYS, MEMBERS, WEBSITES, member_of

pytestmark = [pytest.mark.real, pytest.mark.fleet]

PAGE = ROOT / "docs" / "operate.md"
SYSTEM = "ringleader-system"


def shown() -> tuple[str, list[Block]]:
    """The values file of the page, and the blocks of commands that this test runs."""
    blocks = blocks_of(PAGE.read_text())
    (values,) = (block.body for block in blocks if block.body.startswith("# values.yaml\n"))
    return values, [block for block in blocks if "tests/chart/test_chart_page.py runs it" in block.tag]


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[RealPlane]:
    try:
        async with single_task(
            real_plane(tmp_path / "plane", audit=True, controllers=WORKLOAD_CONTROLLERS)
        ) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def test_the_page_leads_from_nothing_to_objects_that_are_reconciled(
    plane: RealPlane, helm_binary: Path, tmp_path: Path
) -> None:
    values, (install, look) = shown()
    place = tmp_path / "checkout"
    place.mkdir()
    for name in ("manifests", "examples"):
        (place / name).symlink_to(ROOT / name)
    local = values.replace("/app/controller.py", str(website_controller()))
    (place / "values.yaml").write_text(local)
    tools = place / "bin"
    tools.mkdir()
    (tools / "helm").symlink_to(helm_binary)
    (tools / "kubectl").symlink_to(kubectl())
    async with (
        IndependentClient(plane.kubeconfig) as admin,
        running_pods(plane.kubeconfig, admin, tmp_path / "pods") as pods,
    ):
        await run(install.body, place, plane)

        async def is_owned() -> bool:
            sites = await admin.list_all(WEBSITES, namespace="default")
            owners = [site["metadata"].get("labels", {}).get(KEYS.shard, "") for site in sites]
            return bool(owners) and all(member_of(owner) in MEMBERS for owner in owners)

        await pods.wait_rolled_out(DEPLOYMENTS, "ringleader-sharder", SYSTEM)
        await pods.wait_rolled_out(STATEFULSETS, "websites", SYSTEM)
        await eventually(is_owned, within_s=60, told=pods.logs)
        said = await run(look.body, place, plane)
    assert "websites-0" in said


def kubectl() -> Path:
    try:
        return find_binaries(["kubectl"], kubernetes_recipe())["kubectl"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def run(commands: str, place: Path, plane: RealPlane) -> str:
    """What *commands* print; all of them have to succeed."""
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", commands),
        cwd=place,
        env={"PATH": path, "HOME": str(place), "KUBECONFIG": str(plane.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()
