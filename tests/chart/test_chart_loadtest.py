"""The load test's chart: accepted by a real API server, and its Jobs' commands run under the chart's own rights.

There is no kubelet: the commands run here, with a token of the chart's account in the place of the mounted one, and
with a folder in the place of the mounted ConfigMap.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.resource import NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from tests.chart.helm import ROOT, Helm, HelmFailed
from tests.chart.manifests import RESTRICTED, dry_run, kinds
from tests.chart.running_pods import images

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

Doc = dict[str, Any]
TESTS = "tests"
SPEC = FleetSpec(lease_s=6, sharders=1)
VALUES: Doc = {
    "objects": 40,
    "rate": 10,
    "duration": "5s",
    "workers": 1,
    "output": "json",
    "ring": SPEC.ring,
    "leaseNamespace": SPEC.lease_namespace,
    "fleetNamespace": SPEC.lease_namespace,
    "namespace": SPEC.namespace,
    "slo": {"assigned": "30s", "ready": "30s", "unowned": 0},
}
CUSTOM: Doc = {
    "scenario": "custom",
    "customScenario": {
        "description": "An even rate.",
        "operations": {"create": 1, "update": 1},
        "load": [{"at": "0%", "rate": "100%"}],
    },
    "template": "apiVersion: example.com/v1\nkind: Website\nmetadata: {name: page}\nspec: {html: '${version}'}\n",
}


@pytest.fixture
def chart(renderer: Helm) -> Helm:
    return replace(renderer, chart=ROOT / "manifests" / "loadtest")


@pytest.mark.parametrize("values", [{}, {**VALUES, **CUSTOM}], ids=["defaults", "everything"])
async def test_the_api_server_accepts_every_object_strictly(
    chart: Helm, plane: RealPlane, admin: IndependentClient, values: Doc
) -> None:
    """Pods too, in a namespace under the restricted Pod Security Standard."""
    assert "0 chart(s) failed" in await chart.lint(values)
    for name in ("ringleader-websites", "ringleader-system", SPEC.namespace, SPEC.lease_namespace):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": name}})
    await admin.create_if_absent(
        NAMESPACES, {"metadata": {"name": TESTS, "labels": {RESTRICTED: "restricted"}}}
    )
    objects = await chart.template(values, namespace=TESTS)
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        discovery = Discovery(client)
        for obj in objects:
            await dry_run(admin, discovery, obj)
    for job in kinds(objects, "Job"):
        pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
        pod["metadata"] = {**pod["metadata"], "name": "pod"}
        await admin.request("POST", f"/api/v1/namespaces/{TESTS}/pods", query={"dryRun": "All"}, body=pod)


@pytest.mark.parametrize(
    ("values", "told"), [({"workers": 0}, "/workers"), ({"scenarios": "steady"}, "'scenarios'")]
)
async def test_wrong_values_are_refused_by_name(chart: Helm, values: Doc, told: str) -> None:
    with pytest.raises(HelmFailed, match=told):
        await chart.template(values)


@pytest.mark.alone
async def test_the_jobs_measure_a_fleet_under_the_charts_own_rights(
    chart: Helm, plane: RealPlane, admin: IndependentClient, tmp_path: Path
) -> None:
    async with open_fleet(plane, tmp_path / "fleet", spec=SPEC) as fleet:
        await fleet.start(replicas=2)
        objects = await chart.template({**VALUES, **CUSTOM}, namespace=TESTS)
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": TESTS}})
        await install(plane, admin, objects)
        account = next(obj["metadata"]["name"] for obj in kinds(objects, "ServiceAccount"))
        kubeconfig = await plane.service_account_kubeconfig(TESTS, account)
        code, out, err = await run_jobs(objects, kubeconfig, tmp_path)
        assert code == 0, err
        report = json.loads(out)
        assert await left_behind(fleet) == 0
    assert report["passed"] is True, report["verdict"]
    assert {line["name"]: line["passed"] for line in report["verdict"]}["assigned"] is True


async def install(plane: RealPlane, admin: IndependentClient, objects: list[Doc]) -> None:
    """The account and its rights; there is no kubelet for the rest."""
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        discovery = Discovery(client)
        for obj in objects:
            if obj["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
                group = obj["apiVersion"].rpartition("/")[0]
                resource: ApiResource = await discovery.resolve(
                    f"{obj['kind']}.{group}" if group else obj["kind"]
                )
                await admin.create(resource, obj, namespace=obj["metadata"].get("namespace", ""))


async def run_jobs(objects: list[Doc], kubeconfig: Path, directory: Path) -> tuple[int, str, str]:
    """Run the containers of both Jobs to their ends; what the master said."""
    inputs, out = directory / "inputs", directory / "out"
    inputs.mkdir()
    (config,) = kinds(objects, "ConfigMap")
    for name, text in config["data"].items():
        (inputs / name).write_text(text)
    shutil.copy(kubeconfig, inputs / "kubeconfig")
    master, workers = (job["spec"]["template"]["spec"]["containers"][0] for job in kinds(objects, "Job"))
    places = {
        "/etc/loadtest": str(inputs),
        "/tmp/loadtest": str(out / "loadtest"),
        f"{config['metadata']['name']}.{TESTS}.svc": "127.0.0.1",
    }
    out.mkdir()
    worker = await start(workers, places)
    process = await start(master, places)
    try:
        async with asyncio.timeout(150):
            said, complained = await process.communicate()
            _, problems = await worker.communicate()
    finally:
        for each in (process, worker):
            if each.returncode is None:
                each.kill()
                await each.wait()
    assert worker.returncode == 0, problems.decode()
    return process.returncode or 0, said.decode(), f"{complained.decode()}\nworker: {problems.decode()}"


async def start(container: Doc, places: Mapping[str, str]) -> asyncio.subprocess.Process:
    def here(text: str) -> str:
        for there, place in places.items():
            text = text.replace(there, place)
        return text

    environment = {each["name"]: here(each["value"]) for each in container["env"] if each["name"] != "HOME"}
    words = images().command(container, {}, address="127.0.0.1")
    return await asyncio.create_subprocess_exec(
        *map(here, words),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def left_behind(fleet: Fleet) -> int:
    """Objects of the run that it did not delete."""
    return len(await fleet.client.list_all(SPEC.resource, namespace=SPEC.namespace))
