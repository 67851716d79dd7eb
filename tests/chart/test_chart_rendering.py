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
from tests.chart.helm import Helm, HelmFailed
from tests.chart.manifests import RESTRICTED, dry_run, kinds
from tests.chart.pods import pod_of

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Doc = dict[str, Any]
NAMESPACE = "sites"
CLUSTER_NAME = "ringleader-system-ringleader"
"""Begins the names of the objects without a namespace, of the release in its default namespace."""
RING: Doc = {
    "name": "websites",
    "spec": {
        "resources": [
            {
                "group": "example.com",
                "resource": "websites",
                "controlledResources": [{"group": "", "resource": "configmaps"}],
            }
        ]
    },
}
CONTROLLER: Doc = {
    "name": "websites",
    "ring": "websites",
    "image": "registry.example.com/websites:1",
    "target": "/app/controller.py:websites",
    "rules": [{"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]}],
}
EVERYTHING: Doc = {
    "fullnameOverride": "sharding",
    "image": {"repository": "registry.example.com/ringleader", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "sharder": {
        "replicas": 3,
        "ringNames": ["websites"],
        "resources": [{"apiGroups": ["apps"], "resources": ["deployments"]}],
        "leaseNamespaces": ["elsewhere"],
        "webhook": {"enabled": True, "port": 9444, "ringNames": ["elsewhere.example.com"]},
        "networkPolicy": {
            "enabled": True,
            "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
            "from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        },
        "extraArgs": ["--context=in-cluster"],
        "env": [{"name": "TZ", "value": "UTC"}],
        "serviceAccount": {"create": True, "name": "", "annotations": {"example.com/role": "sharder"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "sites"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "dashboard": {
        "enabled": True,
        "port": 8086,
        "serviceAccount": {"create": True, "name": "", "annotations": {"example.com/role": "dashboard"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "sites"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    },
    "priority": {
        "leaseShares": 20,
        "labelShares": 10,
        "labelBorrowingPercent": 0,
        "extraServiceAccounts": [{"namespace": "elsewhere", "name": "others"}],
    },
    "rings": [{**RING, "keep": False}],
    "controllers": [
        {
            **CONTROLLER,
            "extraArgs": ["--workers=16"],
            "env": [{"name": "TZ", "value": "UTC"}],
            "envFrom": [{"secretRef": {"name": "websites"}}],
            "resources": {"requests": {"memory": "64Mi"}},
            "podLabels": {"team": "sites"},
            "podAnnotations": {"a": "b"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "priorityClassName": "high",
            "volumes": [{"name": "more", "emptyDir": {}}],
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
            "podDisruptionBudget": {"maxUnavailable": "50%"},
            "askAboutTokens": True,
        },
        {
            "name": "others",
            "ring": "elsewhere.example.com",
            "leaseNamespace": "elsewhere",
            "image": "registry.example.com/others:1",
            "command": ["/others"],
            "args": ["--shard=$(POD_NAME)"],
            "probes": False,
            "replicas": 0,
            "serviceAccount": {"create": False, "name": "others"},
            "podDisruptionBudget": {"enabled": False},
        },
    ],
}
ONLY_CONTROLLERS: Doc = {
    "sharder": {"enabled": False},
    "crds": {"enabled": False},
    "rings": [RING],
    "controllers": [CONTROLLER],
}
CASES = [
    pytest.param({}, id="defaults"),
    pytest.param(EVERYTHING, id="everything"),
    pytest.param(ONLY_CONTROLLERS, id="only controllers"),
]


@pytest.mark.parametrize("values", CASES)
async def test_helm_lint_finds_nothing(renderer: Helm, values: Doc) -> None:
    assert "0 chart(s) failed" in await renderer.lint(values)


@pytest.mark.parametrize("values", CASES)
async def test_the_api_server_accepts_every_object_strictly(
    renderer: Helm, admin: IndependentClient, plane: RealPlane, values: Doc
) -> None:
    """Unknown and duplicate fields included: what a template misspells does not pass."""
    for namespace in (NAMESPACE, "elsewhere", "ringleader-websites"):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": namespace}})
    await admin.create_if_absent(CRDS, yaml.safe_load(ring_crd().read_text()))
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        discovery = Discovery(client)
        for obj in await renderer.template(values, namespace=NAMESPACE):
            await dry_run(admin, discovery, obj)


async def test_every_pod_passes_the_restricted_standard(renderer: Helm, admin: IndependentClient) -> None:
    await admin.create_if_absent(
        NAMESPACES, {"metadata": {"name": "strict", "labels": {RESTRICTED: "restricted"}}}
    )
    workloads = [
        obj
        for obj in await renderer.template(
            {"rings": [RING], "controllers": [CONTROLLER], "dashboard": {"enabled": True}}, namespace="strict"
        )
        if obj["kind"] in ("Deployment", "StatefulSet")
    ]
    assert len(workloads) == 3
    for workload in workloads:
        pod = pod_of(workload, "pod")
        await admin.request("POST", "/api/v1/namespaces/strict/pods", query={"dryRun": "All"}, body=pod)
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


async def test_the_crd_of_the_chart_is_the_projects_one(renderer: Helm) -> None:
    source = yaml.safe_load(ring_crd().read_text())
    for keep in (True, False):
        (crd,) = kinds(await renderer.template({"crds": {"keep": keep}}), "CustomResourceDefinition")
        assert crd["spec"] == source["spec"]
        assert crd["metadata"]["name"] == source["metadata"]["name"]
        assert (crd["metadata"]["annotations"].get("helm.sh/resource-policy") == "keep") is keep


async def test_without_crds_none_is_rendered(renderer: Helm) -> None:
    assert not kinds(await renderer.template({"crds": {"enabled": False}}), "CustomResourceDefinition")


async def test_leases_are_granted_in_the_rings_namespaces_and_nowhere_else(renderer: Helm) -> None:
    """Elsewhere the sharder may write two Leases, by name: its election, and that of a former controller."""
    former = {"lease": {"namespace": "legacy", "name": "former-leader"}}
    rings = [ring_in("sites"), {"name": "other", "spec": {**RING["spec"], "activation": former}}]
    values = {"sharder": {"leaseNamespaces": ["elsewhere"]}, "rings": rings}
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
    objects = await renderer.template({"sharder": {"leaseNamespaces": ["*"]}, "rings": [RING]})
    assert [grants(role, "leases") for role in kinds(objects, "ClusterRole")] == [True]
    assert not kinds(objects, "Role")


async def test_a_ring_has_a_lease_namespace_of_its_own_which_outlives_the_release(renderer: Helm) -> None:
    """Who may write Leases of one ring reaches neither another's nor the sharders' election."""
    rings = [RING, {**RING, "name": "example.com"}, {**ring_in("sites"), "name": "third"}]
    objects = await renderer.template({"rings": rings, "controllers": [CONTROLLER]}, namespace="release")
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
        "rings": [RING],
        "sharder": {"resources": [{"apiGroups": ["apps"], "resources": ["deployments"]}]},
    }
    (role,) = kinds(await renderer.template(values), "ClusterRole")
    labels = {"get", "list", "watch", "patch"}
    assert granted(role) == {
        ("ringleader.dev", "controllerrings"): labels | {"assign", "own"},
        ("ringleader.dev", "controllerrings/status"): {"patch"},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"get", "delete"},
        ("", "namespaces"): {"list", "watch"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("example.com", "websites"): labels,
        ("", "configmaps"): labels,
        ("apps", "deployments"): labels,
    }


async def test_a_replica_may_own_its_ring_only_and_nobody_is_granted_what_no_one_may(renderer: Helm) -> None:
    objects = await renderer.template({"rings": [RING], "controllers": [CONTROLLER]})
    roles = {role["metadata"]["name"]: role for role in kinds(objects, "ClusterRole")}
    (rule,) = (rule for rule in roles[f"{CLUSTER_NAME}-websites"]["rules"] if "own" in rule["verbs"])
    assert rule["resourceNames"] == ["websites"]
    assert "assign" not in rule["verbs"]
    assert not [role for role in roles.values() if {"nobody", "*"} & set().union(*granted(role).values())]


async def test_releases_of_one_name_in_two_namespaces_share_no_object(renderer: Helm) -> None:
    ring, controller = {**RING, "name": "others"}, {**CONTROLLER, "ring": "others"}
    without = {"sharder": {"enabled": False}, "crds": {"enabled": False}}
    first = await renderer.template({"rings": [RING], "controllers": [CONTROLLER]}, namespace="team-a")
    second = await renderer.template(
        {**without, "rings": [ring], "controllers": [controller]}, namespace="team-b"
    )
    assert second
    assert not {_identity(each) for each in first} & {_identity(each) for each in second}


def _identity(obj: Doc) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


async def test_the_guard_can_warn_or_be_off(renderer: Helm) -> None:
    actions = {}
    for mode in ("Enforce", "Warn", "Off"):
        objects = await renderer.template({"rings": [RING], "labelGuard": {"mode": mode, "mutate": "Always"}})
        bindings = kinds(objects, "ValidatingAdmissionPolicyBinding")
        actions[mode] = [binding["spec"]["validationActions"] for binding in bindings]
        assert len(kinds(objects, "ValidatingAdmissionPolicy")) == len(bindings)
        assert len(kinds(objects, "MutatingAdmissionPolicy")) == (mode == "Enforce")
    assert actions == {"Enforce": [["Deny"]] * 3, "Warn": [["Warn", "Audit"]] * 3, "Off": []}


async def test_without_a_server_that_says_so_nothing_is_mended(renderer: Helm) -> None:
    assert not kinds(await renderer.template({"rings": [RING]}), "MutatingAdmissionPolicy")


async def test_the_sharders_patches_and_everybodys_leases_have_levels_of_their_own(renderer: Helm) -> None:
    values = {
        "rings": [RING],
        "controllers": [CONTROLLER],
        "sharder": {"resources": [{"apiGroups": ["apps"], "resources": ["deployments"]}]},
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
    values = {"rings": [RING], "priority": {"labelBorrowingPercent": percent}}
    levels = kinds(await renderer.template(values), "PriorityLevelConfiguration")
    assert [
        each["spec"]["limited"].get("borrowingLimitPercent")
        for each in levels
        if each["metadata"]["name"].endswith("-labels")
    ] == [limit]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"priority": {"enabled": False}, "rings": [RING]}, []),
        ({}, ["leases"]),
        (ONLY_CONTROLLERS, ["leases"]),
        ({"rings": [RING]}, ["labels", "leases"]),
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


async def test_who_reaches_the_webhook_can_be_limited(renderer: Helm) -> None:
    servers: Doc = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    scrapers: Doc = {"namespaceSelector": {}}
    limits = {"enabled": True, "webhookFrom": [servers], "from": [scrapers]}
    values = {"sharder": {"webhook": {"enabled": True}, "networkPolicy": limits}}
    objects = await renderer.template(values)
    (policy,) = kinds(objects, "NetworkPolicy")
    assert {rule["ports"][0]["port"]: rule["from"] for rule in policy["spec"]["ingress"]} == {
        "webhook": [servers],
        "probes": [scrapers],
    }
    (deployment,) = kinds(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


async def test_webhook_configurations_are_granted_by_name_and_never_all_of_them(renderer: Helm) -> None:
    for enabled, verbs in ((False, {"get", "delete"}), (True, {"get", "delete", "create", "patch"})):
        named = {"rings": [RING], "sharder": {"webhook": {"enabled": enabled, "ringNames": ["other"]}}}
        (role,) = kinds(await renderer.template(named), "ClusterRole")
        (rule,) = (rule for rule in role["rules"] if "mutatingwebhookconfigurations" in rule["resources"])
        assert rule["resourceNames"] == ["ringleader-other", "ringleader-websites"]
        assert set(rule["verbs"]) == verbs
        nameless = {"sharder": {"webhook": {"enabled": enabled}}}
        (role,) = kinds(await renderer.template(nameless), "ClusterRole")
        assert not grants(role, "mutatingwebhookconfigurations"), "no names would mean all of them"


@pytest.mark.parametrize("asks", [True, False])
async def test_replicas_may_ask_about_tokens_if_that_is_wanted(renderer: Helm, asks: bool) -> None:
    values = {"rings": [RING], "controllers": [{**CONTROLLER, "askAboutTokens": asks}]}
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
    objects = await renderer.template({"dashboard": {"enabled": True}, "rings": [RING]})
    deployment = next(each for each in kinds(objects, "Deployment") if each["metadata"]["name"] == DASHBOARD)
    pod = pod_of(deployment, "pod")
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["dashboard", "--bind=:8085"]
    (service,) = (each for each in kinds(objects, "Service") if each["metadata"]["name"] == DASHBOARD)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [port["port"] for port in service["spec"]["ports"]] == [8085]
    name = f"{CLUSTER_NAME}-dashboard"
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


async def test_the_policy_of_the_sharders_network_lets_the_dashboard_in(renderer: Helm) -> None:
    closed = {"sharder": {"networkPolicy": {"enabled": True}}}
    objects = await renderer.template({**closed, "dashboard": {"enabled": True}})
    (policy,) = kinds(objects, "NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    deployment = next(each for each in kinds(objects, "Deployment") if each["metadata"]["name"] == DASHBOARD)
    labels = pod_of(deployment, "pod")["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert rule["ports"] == [{"port": "probes"}]
    (policy,) = kinds(await renderer.template(closed), "NetworkPolicy")
    assert not policy["spec"].get("ingress")


async def test_the_dashboard_is_off_unless_asked_for_and_needs_the_sharders_release(renderer: Helm) -> None:
    assert DASHBOARD not in str(await renderer.template({}))
    with pytest.raises(HelmFailed, match=r"sharder\.enabled is false"):
        await renderer.template({"sharder": {"enabled": False}, "dashboard": {"enabled": True}})


async def test_the_webhook_is_off_unless_asked_for(renderer: Helm) -> None:
    objects = await renderer.template({"rings": [RING]})
    assert not kinds(objects, "Secret")
    assert not any(grants(role, "secrets") for role in kinds(objects, "Role") + kinds(objects, "ClusterRole"))
    (deployment,) = kinds(objects, "Deployment")
    assert "webhook" not in str(deployment)


async def test_service_monitors_find_the_services(renderer: Helm) -> None:
    values = {
        "monitoring": {"serviceMonitor": {"enabled": True}},
        "rings": [RING],
        "controllers": [CONTROLLER],
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
    objects = await renderer.template({"rings": [RING], "controllers": [CONTROLLER]})
    pods = [pod_of(obj, "pod") for kind in ("Deployment", "StatefulSet") for obj in kinds(objects, kind)]
    selectors = [service["spec"]["selector"] for service in kinds(objects, "Service")]
    selectors += [
        budget["spec"]["selector"]["matchLabels"] for budget in kinds(objects, "PodDisruptionBudget")
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert sum(selector.items() <= pod["metadata"]["labels"].items() for pod in pods) == 1


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"sharder": {"replica": 3}}, ["/sharder", "'replica'"]),
        ({"shader": {}}, ["'shader'"]),
        ({"sharder": {"logLevel": "loud"}}, ["/sharder/logLevel"]),
        ({"sharder": {"webhook": {"enable": True}}}, ["/sharder/webhook", "'enable'"]),
        ({"sharder": {"leaseDurationSeconds": "15s"}}, ["/sharder/leaseDurationSeconds", "integer"]),
        ({"labelGuard": {"mode": "On"}}, ["/labelGuard/mode"]),
        ({"rings": [{"name": "Websites", "spec": RING["spec"]}]}, ["/rings/0/name"]),
        (
            {"rings": [{"name": "w" * 60, "spec": RING["spec"]}]},
            ["spec.leaseNamespace", "too long", "name one"],
        ),
        (
            {"sharder": {"webhook": {"enabled": True}, "networkPolicy": {"enabled": True}}},
            ["sharder.networkPolicy.webhookFrom", "is empty", "API servers"],
        ),
        ({"rings": [RING, RING]}, ["rings", '"websites"', "twice"]),
        ({"rings": [RING], "controllers": [CONTROLLER, CONTROLLER]}, ["controllers", '"websites"', "twice"]),
        ({"controllers": [{**CONTROLLER, "args": []}]}, ["/controllers/0", "oneOf"]),
        ({"controllers": [{**CONTROLLER, "rulez": []}]}, ["/controllers/0", "'rulez'"]),
        ({"controllers": [CONTROLLER]}, ["controllers[websites].leaseNamespace", "is missing"]),
        (
            {"rings": [RING], "controllers": [{**CONTROLLER, "leaseNamespace": "elsewhere"}]},
            ["controllers[websites].leaseNamespace", '"elsewhere"', "leave it out"],
        ),
        (
            {"rings": [RING], "controllers": [{**CONTROLLER, "leaseDurationSeconds": 61}]},
            ["controllers[websites].leaseDurationSeconds", "61", "maxLeaseDurationSeconds", "60"],
        ),
    ],
)
async def test_wrong_values_are_refused_by_name(renderer: Helm, values: Doc, told: list[str]) -> None:
    with pytest.raises(HelmFailed) as refused:
        await renderer.template(values)
    for part in told:
        assert part in str(refused.value)


async def test_values_are_documented_where_they_stand(renderer: Helm) -> None:
    """Every default is in the schema, and everything the schema allows at the top is in values.yaml."""
    chart = Path(__file__).parents[2] / "manifests" / "chart"
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    assert set(defaults) == set(schema["properties"]) - {"global"}
    for name, section in schema["properties"].items():
        if section.get("properties"):
            assert set(defaults[name]) == set(section["properties"]), name


def ring_in(namespace: str) -> Doc:
    return {**RING, "spec": {**RING["spec"], "leaseNamespace": namespace}}


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
    docs = await renderer.template({"rings": [RING], "controllers": [CONTROLLER]})
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
