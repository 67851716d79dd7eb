"""The ways to bring the chart into a cluster that has nothing of ours: Helm 3, kubectl, and releases of several teams.

tests/chart/test_chart_install.py has the whole life with Helm 4. Each test has a control plane of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
import yaml

from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.binaries import find_binaries, helm_recipe
from devcluster.real.real_plane import RealPlane
from devcluster.real.recipes import FORMER_HELM
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.access.cluster import load_cluster
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, NAMESPACES
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ringleader.assets import website_crd
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.single_task import single_task
from scripts.document import blocks_of
from tests.chart.helm import ROOT, Helm
from tests.chart.manifests import kinds
from tests.chart.running_pods import STATEFULSETS, eventually, running_pods
from tests.chart.websites import (
    CONTROLLER,
    KEYS,
    OBJECTS,
    RING,
    SITES,
    WEBSITES,
    condition,
    is_served,
    is_there,
    wait_converged,
    website,
)

pytestmark = [pytest.mark.real]

SYSTEM = "ringleader-system"
CRD_NAME = "controllerrings.ringleader.dev"
VALUES: Doc = {
    "sharder": {"leaseDurationSeconds": 5},
    "rings": {KEYS.ring: RING},
    "controllers": {"websites": CONTROLLER},
}


class Fresh(NamedTuple):
    """A control plane without anything of ours, and its administrator."""

    plane: RealPlane
    admin: IndependentClient


@pytest_asyncio.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Fresh]:
    try:
        async with AsyncExitStack() as stack:
            planes = real_plane(tmp_path / "plane", audit=True, controllers=WORKLOAD_CONTROLLERS)
            plane = await stack.enter_async_context(single_task(planes))
            yield Fresh(plane, await stack.enter_async_context(IndependentClient(plane.kubeconfig)))
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


def program(name: str) -> Path:
    try:
        return find_binaries([name], kubernetes_recipe())[name]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def make_sites(admin: IndependentClient) -> None:
    """The users' own kind, and objects of it."""
    await admin.create(CRDS, yaml.safe_load(website_crd().read_text()))
    await admin.create(NAMESPACES, {"metadata": {"name": SITES}})
    await eventually(lambda: is_served(admin, WEBSITES), within_s=30)
    for number in range(OBJECTS):
        await admin.create(WEBSITES, website(number), namespace=SITES)


async def run_pods(fresh: Fresh, directory: Path) -> None:
    """Run every pod of the release until all sites are reconciled."""
    async with running_pods(fresh.plane.kubeconfig, fresh.admin, directory) as pods:
        await wait_converged(fresh.admin, pods)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(900)
async def test_helm_3_installs_everything_at_once_upgrades_and_leaves_crd_and_ring(
    fresh: Fresh, tmp_path: Path
) -> None:
    try:
        found = await asyncio.to_thread(ensure_binaries, ["helm"], helm_recipe(FORMER_HELM))
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    plane, admin = fresh
    helm = Helm(found["helm"], tmp_path, plane.kubeconfig)
    await make_sites(admin)
    notes = await helm.install("ringleader", VALUES, namespace=SYSTEM)
    assert notes.rstrip().endswith("NOTES:\nNext: ringleader status websites")
    await run_pods(fresh, tmp_path / "pods")
    await helm.upgrade("ringleader", {**VALUES, "networkPolicy": {"enabled": True}}, namespace=SYSTEM)
    await helm.uninstall("ringleader", namespace=SYSTEM)
    assert await is_there(admin, CRDS, CRD_NAME)
    assert await is_there(admin, CONTROLLER_RINGS, KEYS.ring)


async def test_helm_3_and_4_render_the_same_objects(helm_binary: Path, tmp_path: Path) -> None:
    try:
        found = find_binaries(["helm"], helm_recipe(FORMER_HELM))
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; the slow test of this module builds it once")
    former, current = [
        await Helm(binary, tmp_path).template(VALUES, crds=True) for binary in (found["helm"], helm_binary)
    ]
    assert {str(obj) for obj in former} == {str(obj) for obj in current}


@pytest.mark.fleet
async def test_kubectl_brings_everything_but_the_ring_at_once_then_the_ring_then_changes_nothing(
    fresh: Fresh, helm_binary: Path, tmp_path: Path
) -> None:
    """kubectl looks every kind up before it applies anything, so a new kind's objects need a second call."""
    plane, admin = fresh
    text = await Helm(helm_binary, tmp_path).template_text(VALUES, crds=True, hooks=False)
    objects = [doc for doc in yaml.safe_load_all(text) if doc]
    await make_sites(admin)
    await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    kubectl = program("kubectl")
    code, said = await apply(kubectl, plane, text)
    assert (code, said.count("no matches for kind")) == (1, 1), said
    assert 'no matches for kind "ControllerRing"' in said
    await eventually(lambda: is_served(admin, CONTROLLER_RINGS), within_s=30)
    for changed in (True, False):
        before = await contents(admin, plane, objects)
        code, said = await apply(kubectl, plane, text)
        assert (code, said.count("serverside-applied")) == (0, len(objects)), said
        after = await contents(admin, plane, objects)
        assert len(after) == len(objects)
        ring = {("ControllerRing", f"/{KEYS.ring}")}
        assert {key for key in after if after[key] != before.get(key)} == (ring if changed else set())
    await run_pods(fresh, tmp_path / "pods")


async def apply(kubectl: Path, plane: RealPlane, text: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl), "--kubeconfig", str(plane.kubeconfig), "apply", "--server-side", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(text.encode())
    return process.returncode, said.decode()


async def contents(
    admin: IndependentClient, plane: RealPlane, objects: list[Doc]
) -> dict[tuple[str, str], Doc]:
    """What the server holds of each object, by kind and name, but for its own bookkeeping."""
    found = {}
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        discovery = Discovery(client)
        for obj in objects:
            group = obj["apiVersion"].rpartition("/")[0]
            resource = await discovery.resolve(f"{obj['kind']}.{group}" if group else obj["kind"])
            name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
            where = namespace if resource.namespaced else ""
            if not await is_there(admin, resource, name, namespace=where):
                continue
            live = await admin.get(resource, name, namespace=where)
            live.pop("status", None)
            for own in ("managedFields", "resourceVersion"):
                live["metadata"].pop(own, None)
            found[obj["kind"], f"{namespace}/{name}"] = live
    return found


@pytest.mark.fleet
async def test_two_teams_with_releases_of_one_name_share_a_sharder(
    fresh: Fresh, helm_binary: Path, tmp_path: Path
) -> None:
    """The sharder may work both rings, and one team's release goes without the other's."""
    plane, admin = fresh
    helm = Helm(helm_binary, tmp_path, plane.kubeconfig)
    await make_sites(admin)
    rings = {
        "team-a": {"resources": [{"group": "example.com", "resource": "websites"}]},
        "team-b": {"resources": [{"resource": "secrets"}]},
    }
    external = {team: {**ring, "leaseNamespace": f"apps-{team}"} for team, ring in rings.items()}
    for team, ring in rings.items():
        team_values = {
            "sharder": {"enabled": False},
            "rings": {team: ring},
            "controllers": {"web": {**CONTROLLER, "ring": team, "replicas": 0}},
        }
        await helm.install("apps", team_values, namespace=team)
    await helm.install("ringleader", {"externalRings": external}, namespace=SYSTEM)
    seen: list[str] = []

    async def are_worked() -> bool:
        statuses = [(await admin.get(CONTROLLER_RINGS, team)).get("status", {}) for team in rings]
        seen[:] = [reason(status) for status in statuses]
        return not {"", "Forbidden", "ResourceFails", "InvalidSpec"} & set(seen)

    async with running_pods(plane.kubeconfig, admin, tmp_path / "pods") as pods:
        await eventually(are_worked, within_s=60, told=lambda: seen)
        await helm.uninstall("apps", namespace="team-b")
        assert await is_there(admin, STATEFULSETS, "web", namespace="team-a")
        assert not await is_there(admin, STATEFULSETS, "web", namespace="team-b")
        for pod in pods.named("ringleader-sharder"):
            assert "forbidden" not in pod.log().lower()


def reason(status: Doc) -> str:
    assert condition(status, "Ready") != "True"
    return next((str(c["reason"]) for c in status.get("conditions", []) if c["type"] == "Ready"), "")


@pytest.mark.fleet
async def test_the_number_of_replicas_is_handed_over_as_the_page_says(
    fresh: Fresh, helm_binary: Path, tmp_path: Path
) -> None:
    """An upgrade that leaves a field out removes it, unless another manager has it too."""
    plane, admin = fresh
    helm = Helm(helm_binary, tmp_path, plane.kubeconfig)
    await helm.install("ringleader", VALUES, namespace=SYSTEM)
    (block,) = (
        block.body
        for block in blocks_of((ROOT / "docs" / "operate.md").read_text())
        if "--field-manager=handover" in block.body
    )
    words = block.replace("kubectl ", f"{program('kubectl')} --kubeconfig {plane.kubeconfig} ")
    process = await asyncio.create_subprocess_exec("bash", "-ec", words)
    assert await process.wait() == 0
    scaled = {**VALUES, "controllerDefaults": {"scaling": {"enabled": True, "kind": "none"}}}
    await helm.upgrade("ringleader", scaled, namespace=SYSTEM)
    stateful = await admin.get(STATEFULSETS, "websites", namespace=SYSTEM)
    assert stateful["spec"]["replicas"] == 3
    owners = [
        each["manager"]
        for each in stateful["metadata"]["managedFields"]
        if "f:replicas" in each["fieldsV1"].get("f:spec", {})
    ]
    assert owners == ["handover"]


async def test_the_packaged_chart_renders_what_the_folder_does(helm_binary: Path, tmp_path: Path) -> None:
    """`helm package` follows the link to the CRD."""
    helm = Helm(helm_binary, tmp_path)
    archive = await helm.package()
    packed = await Helm(helm_binary, tmp_path, chart=archive).template(VALUES, crds=True)
    assert packed == await helm.template(VALUES, crds=True)
    assert len(kinds(packed, "CustomResourceDefinition")) == 1
