"""Contract: how a client learns what the server serves, and which server it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
CHANGE = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


def by_name(resources: list[dict[str, Any]], key: str = "name") -> dict[str, dict[str, Any]]:
    return {resource[key]: resource for resource in resources}


async def test_core_versions_and_groups_are_listed(api: Api) -> None:
    core = (await api.get("/api")).check(200)
    assert (core.body["kind"], core.body["versions"]) == ("APIVersions", ["v1"])
    groups = (await api.get("/apis")).check(200)
    assert groups.body["kind"] == "APIGroupList"
    found = by_name(groups.body["groups"])
    assert {"coordination.k8s.io", "apiextensions.k8s.io", "events.k8s.io", "example.com"} <= set(found)
    assert found["example.com"]["preferredVersion"] == {"groupVersion": "example.com/v1", "version": "v1"}


async def test_one_group_is_described(api: Api) -> None:
    group = (await api.get("/apis/example.com")).check(200)
    assert group.body == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "example.com",
        "versions": [{"groupVersion": "example.com/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"},
    }


async def test_resources_of_a_defined_group(api: Api) -> None:
    answer = (await api.get("/apis/example.com/v1")).check(200)
    assert (answer.body["kind"], answer.body["groupVersion"]) == ("APIResourceList", "example.com/v1")
    resources = by_name(answer.body["resources"])
    websites = resources["websites"]
    assert (websites["kind"], websites["singularName"], websites["namespaced"]) == (
        "Website",
        "website",
        True,
    )
    assert (websites["shortNames"], websites["categories"]) == (["site"], ["all"])
    assert set(websites["verbs"]) == CHANGE
    assert set(resources["websites/status"]["verbs"]) == {"get", "patch", "update"}
    assert resources["gadgets"]["namespaced"] is False
    assert "gadgets/status" not in resources


async def test_core_resources(api: Api) -> None:
    resources = by_name((await api.get("/api/v1")).check(200).body["resources"])
    for plural, kind, namespaced, short in (
        ("configmaps", "ConfigMap", True, ["cm"]),
        ("namespaces", "Namespace", False, ["ns"]),
        ("secrets", "Secret", True, None),
        ("events", "Event", True, ["ev"]),
    ):
        found = resources[plural]
        assert (found["kind"], found["namespaced"], found.get("shortNames")) == (kind, namespaced, short)
    leases = by_name((await api.get("/apis/coordination.k8s.io/v1")).check(200).body["resources"])["leases"]
    assert (leases["kind"], set(leases["verbs"])) == ("Lease", CHANGE)


async def test_aggregated_discovery_tells_all_groups_at_once(api: Api) -> None:
    answer = (await api.get("/apis", accept=AGGREGATED)).check(200)
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    assert (answer.body["kind"], answer.body["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    groups = {item["metadata"]["name"]: item["versions"] for item in answer.body["items"]}
    (version,) = groups["example.com"]
    websites = by_name(version["resources"], "resource")["websites"]
    assert version["version"] == "v1"
    assert websites["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Website"}
    assert (websites["scope"], websites["singularResource"], websites["shortNames"]) == (
        "Namespaced",
        "website",
        ["site"],
    )
    assert [sub["subresource"] for sub in websites["subresources"]] == ["status"]
    assert by_name(version["resources"], "resource")["gadgets"]["scope"] == "Cluster"
    assert (
        by_name(groups["coordination.k8s.io"][0]["resources"], "resource")["leases"]["scope"] == "Namespaced"
    )


async def test_aggregated_discovery_of_the_core_group(api: Api) -> None:
    answer = (await api.get("/api", accept=AGGREGATED)).check(200)
    (core,) = answer.body["items"]
    resources = by_name(core["versions"][0]["resources"], "resource")
    assert resources["configmaps"]["shortNames"] == ["cm"]
    assert resources["namespaces"]["scope"] == "Cluster"


async def test_client_that_does_not_know_aggregated_discovery_gets_the_old_form(api: Api) -> None:
    answer = (await api.get("/apis", accept=f"{AGGREGATED},application/json")).check(200)
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert (await api.get("/apis", accept="application/json")).check(200).body["kind"] == "APIGroupList"


async def test_version_is_told(api: Api) -> None:
    version = (await api.get("/version")).check(200).body
    assert version["gitVersion"].startswith("v1.")
    assert (version["major"], version["minor"]) == tuple(version["gitVersion"][1:].split(".")[:2])


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_probes_answer_ok(api: Api, path: str) -> None:
    assert (await api.request("GET", path, accept="*/*")).check(200).text == "ok"
