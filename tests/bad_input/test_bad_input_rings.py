"""A ring that cannot be worked is refused with field, value and remedy: by the API server, and by the sharder.

The sharder's own check is seen on a control plane whose definition of ControllerRing allows everything.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kubeio.access.cluster import load_cluster
from kubeio.errors import Invalid, NotFound
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.testing.single_task import single_task
from tests.manifests import manifest

ROOT = Path(__file__).parents[2]
RINGS: dict[str, dict[str, Any]] = manifest(Path(__file__).with_name("cases.yaml"))["rings"]
REFUSED_BY_SCHEMA = [name for name, ring in RINGS.items() if "schema" in ring]
REFUSED_BY_KUBECTL = [name for name, ring in RINGS.items() if "schema" in ring or "strict" in ring]
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
GOOD = {"leaseNamespace": "sites", "resources": [{"group": "example.com", "resource": "websites"}]}
PATIENCE_S = 30.0
Place = Any  # conftest.py: fixtures cannot be imported

pytestmark = pytest.mark.asyncio(loop_scope="module")


def ring(name: str) -> dict[str, Any]:
    spec = {**GOOD, **RINGS.get(name, {}).get("spec", {})}
    return {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": {field: value for field, value in spec.items() if value is not None},
    }


def assert_says(patterns: list[str], text: str) -> None:
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern!r} is not in {text}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conditions(place: Place) -> AsyncIterator[Mapping[str, dict[str, Any]]]:
    """The condition Ready of every ring, once a sharder has looked at all of them."""
    async with single_task(_sharded(place)) as conditions:
        yield conditions


@asynccontextmanager
async def _sharded(place: Place) -> AsyncIterator[Mapping[str, dict[str, Any]]]:
    account = str(place.bare.kubeconfig)
    async with Client(load_cluster(kubeconfig=account)) as client:
        await _allow_everything(client)
        for name in (*RINGS, "good"):
            await client.create(CONTROLLER_RINGS, ring(name), type=dict)
        command = ["-m", "sharder", "--kubeconfig", account, "--lease-namespace", "sites"]
        log = (place.folder / "sharder.log").open("wb")
        with log:
            sharder = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=log, stderr=log)
        try:
            yield await _all_conditions(client)
        finally:
            sharder.terminate()
            await sharder.wait()


async def _allow_everything(client: Client) -> None:
    crd = yaml.safe_load((ROOT / "manifests/crds/ringleader.dev_controllerrings.yaml").read_text())
    for version in crd["spec"]["versions"]:
        version["schema"] = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }
    await client.create(CRDS, crd, type=dict)
    await client.create(CRDS, yaml.safe_load((ROOT / "examples/website/crd.yaml").read_text()), type=dict)
    await client.create(NAMESPACES, {"metadata": {"name": "sites"}}, type=dict)
    for resource in (CONTROLLER_RINGS, WEBSITES):
        while await _is_unknown(client, resource):  # noqa: ASYNC110 - another process's readiness
            await asyncio.sleep(0.05)


async def _is_unknown(client: Client, resource: ApiResource) -> bool:
    try:
        await client.list_page(resource, limit=1)
    except NotFound:
        return True
    return False


async def _all_conditions(client: Client) -> dict[str, dict[str, Any]]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            page = await client.list_page(CONTROLLER_RINGS)
            documents = [yaml.safe_load(found.raw) for found in page.objects]
            found = {each["metadata"]["name"]: _ready(each) for each in documents}
            if all(found.values()):
                return {name: condition for name, condition in found.items() if condition is not None}
            await asyncio.sleep(0.1)


def _ready(document: Mapping[str, Any]) -> dict[str, Any] | None:
    conditions = document.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), None)


@pytest.mark.parametrize("name", RINGS)
async def test_the_sharder_says_in_the_status_what_is_wrong(
    name: str, conditions: Mapping[str, dict[str, Any]]
) -> None:
    assert conditions[name]["status"] == "False"
    assert_says(RINGS[name]["condition"], conditions[name]["message"])


async def test_a_good_ring_among_bad_ones_is_worked(conditions: Mapping[str, dict[str, Any]]) -> None:
    assert conditions["good"]["reason"] not in ("InvalidSpec", "InputError"), conditions["good"]


@pytest.mark.parametrize("name", REFUSED_BY_SCHEMA)
async def test_the_api_server_refuses_what_its_schema_can_see(name: str, place: Place) -> None:
    async with Client(load_cluster(kubeconfig=str(place.plane.kubeconfig))) as client:
        with pytest.raises(Invalid) as refused:
            await client.create(CONTROLLER_RINGS, ring(name), type=dict)
    assert_says(RINGS[name]["schema"], refused.value.message)


@pytest.mark.parametrize("name", REFUSED_BY_KUBECTL)
async def test_kubectl_apply_shows_the_same(name: str, place: Place) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    path = place.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(ring(name)))
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *("apply", "--kubeconfig", str(place.plane.kubeconfig), "-f", str(path)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert_says(RINGS[name].get("schema") or RINGS[name]["strict"], err.decode())
