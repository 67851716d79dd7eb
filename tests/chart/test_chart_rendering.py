"""What the chart renders, judged as objects: by a real API server where that is possible, never as text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.resource import CRDS, NAMESPACES
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ringleader.assets import ring_crd
from ringleader.testing.client import IndependentClient
from ringleader.unmodified.command import run_render
from tests.chart.example_values import (
    CASES,
    CONTROLLER,
    CONTROLLERS,
    DEPLOYMENTS,
    DEPLOYMENTS_RING,
    ONLY_CONTROLLERS,
    RING,
    RINGS,
)
from tests.chart.helm import Helm, HelmFailed
from tests.chart.manifests import dry_run, kinds, pod_of

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Doc = dict[str, Any]
NAMESPACE = "sites"
CLUSTER_NAME = "ringleader-system-ringleader"
"""Begins the names of the objects without a namespace, of the release in its default namespace."""


@pytest.mark.parametrize("values", CASES)
async def test_helm_lint_finds_nothing(renderer: Helm, values: Doc) -> None:
    assert "0 chart(s) failed" in await renderer.lint(values)


@pytest.mark.parametrize("values", CASES)
async def test_the_api_server_accepts_every_object_strictly(
    renderer: Helm, admin: IndependentClient, plane: RealPlane, values: Doc
) -> None:
    """Unknown and duplicate fields included: what a template misspells does not pass."""
    for namespace in (NAMESPACE, "elsewhere", "ringleader-websites", "ringleader-deployments"):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": namespace}})
    await admin.create_if_absent(CRDS, yaml.safe_load(ring_crd().read_text()))
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        discovery = Discovery(client)
        hooks = await renderer.hooks(values, namespace=NAMESPACE)
        for obj in [*hooks, *await renderer.template(values, namespace=NAMESPACE)]:
            await dry_run(admin, discovery, obj)


async def test_the_crd_is_the_projects_one_and_no_template(renderer: Helm) -> None:
    """In `crds/` Helm creates it before it resolves the kinds of templates: one install brings it and rings."""
    assert not kinds(await renderer.template({}), "CustomResourceDefinition")
    (crd,) = kinds(await renderer.template({}, crds=True), "CustomResourceDefinition")
    assert crd == yaml.safe_load(ring_crd().read_text())


@pytest.mark.parametrize("values", CASES)
async def test_rendering_twice_gives_the_same_bytes(renderer: Helm, values: Doc) -> None:
    """Argo CD renders again and again, and takes every difference for a change."""
    first, second = [await renderer.template_text(values, crds=True) for _ in range(2)]
    assert first == second


async def test_leases_are_granted_in_the_rings_namespaces_and_nowhere_else(renderer: Helm) -> None:
    """Elsewhere the sharder may write two Leases, by name: its election, and that of a former controller."""
    former = {"lease": {"namespace": "legacy", "name": "former-leader"}}
    rings = {"websites": {**RING, "leaseNamespace": "sites"}, "other": {**RING, "activation": former}}
    values = {"externalRings": {"third": {"leaseNamespace": "elsewhere"}}, "rings": rings}
    objects = await renderer.template(values, namespace="ringleader-system")
    found = {
        role["metadata"]["namespace"]: [
            (set(rule["verbs"]), rule.get("resourceNames")) for rule in role["rules"]
        ]
        for role in kinds(objects, "Role")
    }
    everything = [({"get", "list", "watch", "create", "update", "delete"}, None)]
    assert found == {
        "sites": everything,
        "ringleader-other": everything,
        "elsewhere": everything,
        "ringleader-system": [({"get", "update"}, ["ringleader-sharder"]), ({"create"}, None)],
        "legacy": [({"get", "update"}, ["former-leader"]), ({"create"}, None)],
    }
    assert not any(grants(role, "leases") for role in kinds(objects, "ClusterRole"))


async def test_all_leases_of_the_cluster_are_granted_only_when_asked_for(renderer: Helm) -> None:
    objects = await renderer.template({"externalRings": {"any": {"leaseNamespace": "*"}}, "rings": RINGS})
    assert [grants(role, "leases") for role in kinds(objects, "ClusterRole")] == [True]
    assert not kinds(objects, "Role")


async def test_a_ring_has_a_lease_namespace_of_its_own_which_outlives_the_release(renderer: Helm) -> None:
    """Who may write Leases of one ring reaches neither another's nor the sharders' election."""
    rings = {"websites": RING, "example.com": RING, "third": {**RING, "leaseNamespace": "sites"}}
    objects = await renderer.template({"rings": rings, "controllers": CONTROLLERS}, namespace="release")
    namespaces = {
        ring["metadata"]["name"]: ring["spec"]["leaseNamespace"] for ring in kinds(objects, "ControllerRing")
    }
    assert namespaces == {
        "websites": "ringleader-websites",
        "example.com": "ringleader-example-com",
        "third": "sites",
    }
    made = {
        obj["metadata"]["name"]: obj["metadata"]["annotations"]["helm.sh/resource-policy"]
        for obj in kinds(objects, "Namespace")
    }
    assert made == {"ringleader-websites": "keep", "ringleader-example-com": "keep"}
    (role,) = (
        role
        for role in kinds(objects, "Role")
        if role["metadata"]["name"] == "release-ringleader-websites-leases"
    )
    assert role["metadata"]["namespace"] == "ringleader-websites"


async def test_the_sharder_gets_no_more_than_its_rings_resources(renderer: Helm) -> None:
    values = {
        "rings": RINGS,
        "externalRings": {"other": DEPLOYMENTS},
    }
    (role,) = kinds(await renderer.template(values), "ClusterRole")
    labels = {"get", "list", "watch", "patch"}
    assert granted(role) == {
        ("ringleader.dev", "controllerrings"): labels | {"assign", "own"},
        ("ringleader.dev", "controllerrings/status"): {"patch"},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"get", "delete"},
        ("apiextensions.k8s.io", "customresourcedefinitions"): {"get", "patch"},
        ("", "namespaces"): {"list", "watch"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("example.com", "websites"): labels,
        ("", "configmaps"): labels,
        ("apps", "deployments"): labels,
    }


async def test_a_replica_may_own_its_ring_only_and_nobody_is_granted_what_no_one_may(renderer: Helm) -> None:
    objects = await renderer.template({"rings": RINGS, "controllers": CONTROLLERS})
    roles = {role["metadata"]["name"]: role for role in kinds(objects, "ClusterRole")}
    (rule,) = (rule for rule in roles[f"{CLUSTER_NAME}-websites"]["rules"] if "own" in rule["verbs"])
    assert rule["resourceNames"] == ["websites"]
    assert "assign" not in rule["verbs"]
    assert not [role for role in roles.values() if {"nobody", "*"} & set().union(*granted(role).values())]


@pytest.mark.parametrize("grace", [{}, {"terminationGracePeriodSeconds": 300}])
async def test_a_replica_knows_its_grace_period_and_may_read_its_own_statefulset(
    renderer: Helm, grace: Doc
) -> None:
    objects = await renderer.template({"rings": RINGS, "controllers": {"websites": {**CONTROLLER, **grace}}})
    (workload,) = kinds(objects, "StatefulSet")
    pod = workload["spec"]["template"]["spec"]
    period = pod["terminationGracePeriodSeconds"]
    assert f"--termination-grace-period={period}s" in pod["containers"][0]["args"]
    assert period == grace.get("terminationGracePeriodSeconds", 90)
    (role,) = (role for role in kinds(objects, "Role") if ("apps", "statefulsets") in granted(role))
    assert role["metadata"]["namespace"] == workload["metadata"]["namespace"]
    assert granted(role) == {("apps", "statefulsets"): {"get"}}
    assert role["rules"][0]["resourceNames"] == [workload["metadata"]["name"]]


async def test_releases_of_one_name_in_two_namespaces_share_no_object(renderer: Helm) -> None:
    first = await renderer.template({"rings": RINGS, "controllers": CONTROLLERS}, namespace="team-a")
    second = await renderer.template(
        {"sharder": {"enabled": False}, "rings": {"others": RING}, "controllers": {"others": CONTROLLER}},
        namespace="team-b",
    )
    assert second
    assert not {_identity(each) for each in first} & {_identity(each) for each in second}


async def test_a_controller_may_be_called_dashboard(renderer: Helm) -> None:
    controllers = {"dashboard": {**CONTROLLER, "askAboutTokens": True}}
    objects = await renderer.template(
        {"rings": {"dashboard": RING}, "controllers": controllers, "dashboard": {"enabled": True}}
    )
    identities = [_identity(each) for each in objects]
    assert [each for each in identities if identities.count(each) > 1] == []


def _identity(obj: Doc) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


async def test_the_guard_can_warn_or_be_off(renderer: Helm) -> None:
    actions = {}
    for mode in ("Enforce", "Warn", "Off"):
        objects = await renderer.template({"rings": RINGS, "labelGuard": {"mode": mode, "mutate": "Always"}})
        bindings = kinds(objects, "ValidatingAdmissionPolicyBinding")
        actions[mode] = [binding["spec"]["validationActions"] for binding in bindings]
        assert len(kinds(objects, "ValidatingAdmissionPolicy")) == len(bindings)
        assert len(kinds(objects, "MutatingAdmissionPolicy")) == (mode == "Enforce")
    assert actions == {"Enforce": [["Deny"]] * 3, "Warn": [["Warn", "Audit"]] * 3, "Off": []}


async def test_without_a_server_that_says_so_nothing_is_mended(renderer: Helm) -> None:
    assert not kinds(await renderer.template({"rings": RINGS}), "MutatingAdmissionPolicy")


async def test_the_sharders_patches_and_everybodys_leases_have_levels_of_their_own(renderer: Helm) -> None:
    values = {
        "rings": RINGS,
        "controllers": CONTROLLERS,
        "externalRings": {"other": DEPLOYMENTS},
        "priority": {"extraServiceAccounts": [{"namespace": "elsewhere", "name": "others"}]},
    }
    objects = await renderer.template(values, namespace="system")
    levels = {each["metadata"]["name"] for each in kinds(objects, "PriorityLevelConfiguration")}
    schemas = {each["metadata"]["name"]: each["spec"] for each in kinds(objects, "FlowSchema")}
    assert levels == schemas.keys() == {"system-ringleader-leases", "system-ringleader-labels"}
    for name, schema in schemas.items():
        assert schema["priorityLevelConfiguration"]["name"] == name
    subjects = {
        name: {tuple(subject["serviceAccount"].values()) for subject in schema["rules"][0]["subjects"]}
        for name, schema in schemas.items()
    }
    assert subjects == {
        "system-ringleader-leases": {
            ("ringleader-sharder", "system"),
            ("websites", "system"),
            ("others", "elsewhere"),
        },
        "system-ringleader-labels": {("ringleader-sharder", "system")},
    }
    patched = {
        (group, resource)
        for rule in schemas["system-ringleader-labels"]["rules"][0]["resourceRules"]
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"])
        if "patch" in rule["verbs"]
    }
    assert patched == {("example.com", "websites"), ("", "configmaps"), ("apps", "deployments")}


@pytest.mark.parametrize(("percent", "limit"), [(None, None), (0, 0), (400, 400)])
async def test_the_level_of_labels_borrows_without_limit_unless_one_is_given(
    renderer: Helm, percent: int | None, limit: int | None
) -> None:
    values = {"rings": RINGS, "priority": {"labelBorrowingPercent": percent}}
    levels = kinds(await renderer.template(values), "PriorityLevelConfiguration")
    assert [
        each["spec"]["limited"].get("borrowingLimitPercent")
        for each in levels
        if each["metadata"]["name"].endswith("-labels")
    ] == [limit]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"priority": {"enabled": False}, "rings": RINGS}, []),
        ({}, ["leases"]),
        (ONLY_CONTROLLERS, ["leases"]),
        ({"rings": RINGS}, ["labels", "leases"]),
    ],
)
async def test_a_level_comes_with_those_whose_requests_go_there(
    renderer: Helm, values: Doc, names: list[str]
) -> None:
    objects = await renderer.template(values, namespace="system")
    for kind in ("PriorityLevelConfiguration", "FlowSchema"):
        assert sorted(each["metadata"]["name"] for each in kinds(objects, kind)) == [
            f"system-ringleader-{name}" for name in names
        ]


async def test_webhook_configurations_are_granted_by_name_and_never_all_of_them(renderer: Helm) -> None:
    for enabled, verbs in ((False, {"get", "delete"}), (True, {"get", "delete", "create", "patch"})):
        named = {
            "rings": RINGS,
            "externalRings": {"other": {"assignAtAdmission": True}, "third": DEPLOYMENTS},
            "sharder": {"webhook": {"enabled": enabled}},
        }
        (role,) = kinds(await renderer.template(named), "ClusterRole")
        (rule,) = (rule for rule in role["rules"] if "mutatingwebhookconfigurations" in rule["resources"])
        assert rule["resourceNames"] == ["ringleader-other", "ringleader-websites"]
        assert set(rule["verbs"]) == verbs
        nameless = {"sharder": {"webhook": {"enabled": enabled}}}
        (role,) = kinds(await renderer.template(nameless), "ClusterRole")
        assert not grants(role, "mutatingwebhookconfigurations"), "no names would mean all of them"


@pytest.mark.parametrize("asks", [True, False])
async def test_replicas_may_ask_about_tokens_if_that_is_wanted(renderer: Helm, asks: bool) -> None:
    values = {"rings": RINGS, "controllers": {"websites": {**CONTROLLER, "askAboutTokens": asks}}}
    bindings = [
        binding
        for binding in kinds(await renderer.template(values), "ClusterRoleBinding")
        if binding["roleRef"]["name"] == "system:auth-delegator"
    ]
    assert len(bindings) == asks
    for binding in bindings:
        assert [subject["name"] for subject in binding["subjects"]] == ["websites"]


DASHBOARD = "ringleader-dashboard"
"""Objects of the dashboard in the test's release."""


async def test_the_dashboard_reaches_the_sharder_and_both_may_ask_about_tokens(renderer: Helm) -> None:
    objects = await renderer.template({"dashboard": {"enabled": True}, "rings": RINGS})
    deployment = next(each for each in kinds(objects, "Deployment") if each["metadata"]["name"] == DASHBOARD)
    pod = pod_of(deployment)
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["dashboard", "--bind=:8085"]
    (service,) = (each for each in kinds(objects, "Service") if each["metadata"]["name"] == DASHBOARD)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [port["port"] for port in service["spec"]["ports"]] == [8085]
    name = f"{CLUSTER_NAME}.dashboard"
    role = next(each for each in kinds(objects, "ClusterRole") if each["metadata"]["name"] == name)
    assert {"nonResourceURLs": ["/debug/rings"], "verbs": ["get"]} in role["rules"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}, "it writes nothing"
    websites = next(rule for rule in role["rules"] if "websites" in rule.get("resources", []))
    assert websites["verbs"] == ["get"]
    (delegated,) = (
        binding
        for binding in kinds(objects, "ClusterRoleBinding")
        if binding["roleRef"]["name"] == "system:auth-delegator"
    )
    assert [subject["name"] for subject in delegated["subjects"]] == [DASHBOARD, "ringleader-sharder"]


async def test_the_dashboard_is_off_unless_asked_for_and_needs_the_sharders_release(renderer: Helm) -> None:
    assert DASHBOARD not in str(await renderer.template({}))
    with pytest.raises(HelmFailed, match=r"sharder\.enabled is false"):
        await renderer.template({"sharder": {"enabled": False}, "dashboard": {"enabled": True}})


async def test_the_webhook_is_off_unless_asked_for(renderer: Helm) -> None:
    objects = await renderer.template({"rings": RINGS})
    assert not kinds(objects, "Secret")
    assert not any(grants(role, "secrets") for role in kinds(objects, "Role") + kinds(objects, "ClusterRole"))
    (deployment,) = kinds(objects, "Deployment")
    assert "webhook" not in str(deployment)


async def test_service_monitors_find_the_services(renderer: Helm) -> None:
    values = {
        "monitoring": {"serviceMonitor": {"enabled": True}},
        "rings": RINGS,
        "controllers": CONTROLLERS,
    }
    objects = await renderer.template(values)
    services = kinds(objects, "Service")
    monitors = kinds(objects, "ServiceMonitor")
    assert len(monitors) == 2
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        found = [service for service in services if wanted <= service["metadata"]["labels"].items()]
        assert len(found) == 1
        assert monitor["spec"]["endpoints"][0]["port"] == found[0]["spec"]["ports"][0]["name"]


async def test_budgets_and_services_select_the_pods(renderer: Helm) -> None:
    objects = await renderer.template({"rings": RINGS, "controllers": CONTROLLERS})
    pods = [pod_of(obj) for kind in ("Deployment", "StatefulSet") for obj in kinds(objects, kind)]
    selectors = [service["spec"]["selector"] for service in kinds(objects, "Service")]
    selectors += [
        budget["spec"]["selector"]["matchLabels"] for budget in kinds(objects, "PodDisruptionBudget")
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert sum(selector.items() <= pod["metadata"]["labels"].items() for pod in pods) == 1


def granted(role: Doc) -> dict[tuple[str, str], set[str]]:
    """Verbs by group and resource."""
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for place in itertools.product(rule["apiGroups"], rule["resources"]):
            found.setdefault(place, set()).update(rule["verbs"])
    return found


def grants(role: Doc, resource: str) -> bool:
    return any(resource in rule["resources"] for rule in role["rules"])


async def test_the_spread_over_nodes_needs_no_label_of_a_zone(renderer: Helm) -> None:
    """kube-scheduler skips a node that lacks one of the labels for all spread constraints of a pod."""
    docs = await renderer.template({"rings": RINGS, "controllers": {"websites": CONTROLLER}})
    workloads = [doc for doc in docs if doc["kind"] in ("Deployment", "StatefulSet")]
    assert len(workloads) == 2
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        assert [one["topologyKey"] for one in pod["topologySpreadConstraints"]] == ["kubernetes.io/hostname"]
        (zone,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        term = zone["podAffinityTerm"]
        assert term["topologyKey"] == "topology.kubernetes.io/zone"
        assert (
            term["labelSelector"]["matchLabels"].items()
            <= workload["spec"]["template"]["metadata"]["labels"].items()
        )


async def test_the_api_server_accepts_what_the_command_line_puts_the_proxy_into(
    admin: IndependentClient, plane: RealPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"app": "manager"}
    container = {"name": "manager", "image": "registry.example.com/manager:1", "command": ["/manager"]}
    pod = {"serviceAccountName": "manager", "containers": [container]}
    manifest, ring = tmp_path / "manifest.yaml", tmp_path / "ring.yaml"
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    manifest.write_text(yaml.safe_dump({**workload, "metadata": {"name": "manager", "namespace": NAMESPACE}}))
    spec = {**DEPLOYMENTS_RING, "leaseNamespace": NAMESPACE}
    ring.write_text(yaml.safe_dump({"metadata": {"name": "deployments"}, "spec": spec}))
    words = ["--render", str(manifest), "--ring-file", str(ring)]
    assert run_render([*words, "--leaves=pods"]) == 0
    await admin.create_if_absent(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        for obj in yaml.safe_load_all(capsys.readouterr().out):
            await dry_run(admin, Discovery(client), obj)
