"""A cluster with two real nodes, the project's image on both, and the fleet as pods."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.nodes import NodePlane, node_plane
from devcluster.nodes.python_image import write_python_image
from devcluster.real.binaries import find_binaries, helm_recipe
from kubeio.resource import NAMESPACES
from ringleader.assets import website_crd
from ringleader.testing.client import IndependentClient
from ringleader.testing.prerequisites import install_definitions
from ringleader.testing.single_task import single_task
from tests.chart.helm import ROOT, Helm
from tests.cluster.pod_fleet import IMAGE, SPEC, PodFleet, eventually

OBJECTS = 60
UPDATES_PER_S = 10


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel on a base made of this machine's Python: no registry of images is reached here."""
    folder = tmp_path_factory.mktemp("image")
    build = [
        sys.executable,
        "-m",
        "build",
        "--quiet",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    asyncio.run(_run(build))
    (wheel,) = folder.glob("*.whl")
    name = f"docker.io/library/{IMAGE}"
    return write_python_image(folder / "image.tar", wheel=wheel, extras=["admission"], tag=name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(image: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NodePlane]:
    async with single_task(node_plane(tmp_path_factory.mktemp("cluster"), nodes=2, audit=True)) as plane:
        await plane.import_image(image)
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(plane: NodePlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PodFleet]:
    """Namespaces, objects and traffic; the release is the first test's."""
    journals = tmp_path_factory.mktemp("journals")
    journals.chmod(0o777)
    helm = Helm(
        find_binaries(["helm"], helm_recipe())["helm"], tmp_path_factory.mktemp("helm"), plane.kubeconfig
    )
    async with IndependentClient(plane.kubeconfig) as client:
        await client.create(NAMESPACES, {"metadata": {"name": SPEC.namespace}})
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
        print(_table(fleet))  # for docs/operate.md


def _table(fleet: PodFleet) -> str:
    lines = [
        "",
        "| act | longest without a worker | objects that changed their member |",
        "| --- | --- | --- |",
    ]
    return "\n".join(
        [*lines, *(f"| {row.act} | {row.longest_s:.1f} s | {row.moved} |" for row in fleet.rows)]
    )


async def _not_served(client: IndependentClient) -> str:
    await client.list_all(SPEC.resource)
    return ""


async def _run(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
