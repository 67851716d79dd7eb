"""The sharder that leads replaces an older ControllerRing resource, and no other; on both control planes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
import yaml
from prometheus_client import CollectorRegistry, Gauge

from devcluster.faults.fault import Fault
from devcluster.plane import ControlPlane
from kubeio.access.cluster import load_cluster
from kubeio.errors import AlreadyExists, Conflict, NotFound
from kubeio.patch import JsonPatch
from kubeio.resource import CRDS
from kubeio.rest.client import Client
from sharder.schema import PACKAGED, SCHEMA, crd_gauge, packaged_schema, upgrade_crd
from tests.manifests import manifest
from tests.sharder.io.environment import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "controllerrings.ringleader.dev"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(faulty_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(faulty_plane.kubeconfig))) as client:
        with suppress(AlreadyExists):
            await client.create(CRDS, manifest(PACKAGED), type=bytes)
        yield client


@pytest.fixture
def outdated() -> Gauge:
    return crd_gauge(CollectorRegistry())


async def live(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = await client.get(CRDS, NAME, type=dict)
    return found


def spec_properties(crd: dict[str, Any]) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    properties: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return properties


async def make_other(client: Client, schema: str | None) -> dict[str, Any]:
    """Give the cluster a definition that lacks a field and has one more, under this number."""
    marks = {"example.com/kept": "yes"} | ({} if schema is None else {SCHEMA: schema})
    while True:
        crd = await live(client)
        spec_properties(crd).pop("drainPolicy", None)
        spec_properties(crd)["dropped"] = {"type": "string"}
        crd["metadata"]["annotations"] = marks
        with suppress(Conflict):  # the server writes its status
            changed: dict[str, Any] = await client.replace(CRDS, NAME, crd, type=dict)
            return changed


@pytest.mark.parametrize("schema", [None, "0"])
async def test_an_older_definition_becomes_the_packaged_one_without_a_rest(
    client: Client, outdated: Gauge, schema: str | None
) -> None:
    await make_other(client, schema)
    await upgrade_crd(client, outdated)
    crd = await live(client)
    wanted = yaml.safe_load(PACKAGED.read_text())
    assert spec_properties(crd).keys() == spec_properties(wanted).keys()
    assert crd["metadata"]["annotations"][SCHEMA] == str(packaged_schema())
    assert crd["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert gauge(outdated) == 0


async def test_a_definition_without_annotations_gets_the_number(client: Client, outdated: Gauge) -> None:
    await make_other(client, None)
    await client.patch(CRDS, NAME, JsonPatch().remove("/metadata/annotations"), type=bytes)
    await upgrade_crd(client, outdated)
    assert (await live(client))["metadata"]["annotations"] == {SCHEMA: str(packaged_schema())}


@pytest.mark.parametrize("ahead", [0, 1])
async def test_an_equal_or_newer_definition_is_left_alone(
    client: Client, outdated: Gauge, ahead: int
) -> None:
    there = await make_other(client, str(packaged_schema() + ahead))
    await upgrade_crd(client, outdated)
    assert (await live(client))["spec"] == there["spec"]
    assert gauge(outdated) == 0


async def test_a_number_that_cannot_be_read_is_reported_and_left_alone(
    client: Client, outdated: Gauge
) -> None:
    there = await make_other(client, "newest")
    await upgrade_crd(client, outdated)
    assert (await live(client))["spec"] == there["spec"]
    assert gauge(outdated) == 1


async def test_a_refusal_is_reported_and_not_tried_again(
    faulty_plane: ControlPlane, client: Client, outdated: Gauge
) -> None:
    await make_other(client, None)
    await faulty_plane.faults.add(Fault(what="error", code=403, verb="patch", resource=CRDS.group_resource))
    await upgrade_crd(client, outdated)
    (fault,) = await faulty_plane.faults.active()
    assert fault.hits == 1
    await faulty_plane.faults.clear()
    assert gauge(outdated) == 1
    assert spec_properties(await live(client)).keys() >= {"dropped"}


async def test_a_newer_definition_that_replaced_the_one_that_was_read_is_left_alone(
    faulty_plane: ControlPlane, client: Client, outdated: Gauge
) -> None:
    """The upgrade comes late: the definition was deleted meanwhile, and a newer one created."""
    await recreate(client, None)
    await faulty_plane.faults.add(Fault(what="hold", verb="patch", resource=CRDS.group_resource))
    upgrade = asyncio.create_task(upgrade_crd(client, outdated))
    await eventually(faulty_plane.faults.active, lambda faults: faults[0].hits > 0)
    there = await recreate(client, str(packaged_schema() + 1))
    await faulty_plane.faults.clear()
    await upgrade
    assert (await live(client))["metadata"]["annotations"] == there["metadata"]["annotations"]
    assert gauge(outdated) == 0


async def test_a_definition_that_another_sharder_upgraded_meanwhile_is_no_failure(
    faulty_plane: ControlPlane, client: Client, outdated: Gauge
) -> None:
    """Two sharders lead one after the other, and both replace the same definition."""
    await make_other(client, None)
    await faulty_plane.faults.add(Fault(what="hold", verb="patch", resource=CRDS.group_resource))
    upgrades = [asyncio.create_task(upgrade_crd(client, outdated)) for _ in range(2)]
    await eventually(faulty_plane.faults.active, lambda faults: faults[0].hits > 1)
    await faulty_plane.faults.clear()
    await asyncio.gather(*upgrades)
    assert (await live(client))["metadata"]["annotations"][SCHEMA] == str(packaged_schema())
    assert gauge(outdated) == 0


async def recreate(client: Client, schema: str | None) -> dict[str, Any]:
    """Delete the cluster's definition, and create the packaged one under this number."""
    await client.delete(CRDS, NAME)
    await eventually(lambda: is_gone(client), bool)
    crd = manifest(PACKAGED)
    crd["metadata"]["annotations"] = {} if schema is None else {SCHEMA: schema}
    created: dict[str, Any] = await client.create(CRDS, crd, type=dict)
    return created


async def is_gone(client: Client) -> bool:
    try:
        await live(client)
    except NotFound:
        return True
    return False


def gauge(metric: Gauge) -> float:
    (sample,) = (sample for family in metric.collect() for sample in family.samples)
    return sample.value
