"""A cluster with two real nodes, the project's image on both, and the fleet as pods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.image import build_image, tar_of
from devcluster.image.machine_base import machine_base
from devcluster.nodes import NodePlane, node_plane
from devcluster.real.binaries import find_binaries, helm_recipe
from kubeio.errors import InputError
from kubeio.resource import NAMESPACES
from ringleader.assets import website_controller, website_crd
from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import CONFIGMAPS
from ringleader.testing.prerequisites import install_definitions
from ringleader.testing.single_task import single_task
from tests.chart.helm import Helm
from tests.cluster.pod_fleet import PROGRAM, SPEC, SYSTEM, PodFleet, eventually

_SUMMARY = pytest.StashKey[list[str]]()
OBJECTS = 60
UPDATES_PER_S = 10


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SUMMARY] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which image ran, and what each event cost: the table of docs/operate.md."""
    if lines := config.stash[_SUMMARY]:
        terminalreporter.section("pods on real nodes")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Archive of the released image; where Debian packages cannot be had, on a base of this machine's Python."""
    folder = tmp_path_factory.mktemp("image")
    layout, archive = folder / "layout", folder / "image.tar"
    lines = pytestconfig.stash[_SUMMARY]
    try:
        build_image(layout)
        lines.append("image: its base is made of Debian packages, as in releases")
    except InputError as refused:
        lines.append(f"image: its base is this machine's Python ({refused})")
        build_image(layout, base=machine_base(folder / "base").tree)
    archive.write_bytes(tar_of(layout, epoch=0))
    return archive


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(image: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NodePlane]:
    async with single_task(node_plane(tmp_path_factory.mktemp("cluster"), nodes=2, audit=True)) as plane:
        await plane.import_image(image)
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    plane: NodePlane, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> AsyncIterator[PodFleet]:
    """Namespaces, objects and traffic; the release is the first test's."""
    journals = tmp_path_factory.mktemp("journals")
    journals.chmod(0o777)
    helm = Helm(
        find_binaries(["helm"], helm_recipe())["helm"], tmp_path_factory.mktemp("helm"), plane.kubeconfig
    )
    async with IndependentClient(plane.kubeconfig) as client:
        for namespace in (SPEC.namespace, SYSTEM):
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        program = {"metadata": {"name": PROGRAM}, "data": {"controller.py": website_controller().read_text()}}
        await client.create(CONFIGMAPS, program, namespace=SYSTEM)
        await install_definitions(client, [website_crd()])
        fleet = PodFleet(plane, client, helm=helm, journals=journals)
        await eventually(lambda: _not_served(client), within_s=30)
        await fleet.objects.create_many(OBJECTS)
        watching = asyncio.create_task(fleet.watch.run(), name="containers")
        traffic = asyncio.create_task(
            fleet.objects.run_updates(per_s=UPDATES_PER_S, rng=random.Random(1)), name="traffic"
        )
        yield fleet
        for task in (watching, traffic):
            task.cancel()
        await asyncio.gather(watching, traffic, return_exceptions=True)
        pytestconfig.stash[_SUMMARY] += [
            "event | longest time without a worker | objects that changed their member | settled after",
            *(f"{row.act} | {row.longest_s:.1f} s | {row.moved} | {row.took_s:.0f} s" for row in fleet.rows),
        ]


async def _not_served(client: IndependentClient) -> str:
    await client.list_all(SPEC.resource)
    return ""
