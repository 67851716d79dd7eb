"""Values of the chart: what is refused and how, how maps are laid over each other, and the page about them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from scripts.values import CHART, ROOT, leaves, page, texts
from tests.chart.example_values import CONTROLLER, CONTROLLERS, DEPLOYMENTS, POD, RING, RINGS
from tests.chart.helm import Helm, HelmFailed
from tests.chart.manifests import kinds

pytestmark = [pytest.mark.real]

Doc = dict[str, Any]


def other(**changed: object) -> Doc:
    """The ring with its controller, but for what is *changed* of that."""
    return {"rings": RINGS, "controllers": {"websites": {**CONTROLLER, **changed}}}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"sharder": {"replica": 3}}, ["/sharder", "'replica'"]),
        ({"shader": {}}, ["'shader'"]),
        ({"crds": {"keep": False}}, ["'crds'"]),
        ({"sharder": {"logLevel": "loud"}}, ["/sharder/logLevel"]),
        ({"sharder": {"webhook": {"enable": True}}}, ["/sharder/webhook", "'enable'"]),
        ({"sharder": {"leaseDurationSeconds": "15s"}}, ["/sharder/leaseDurationSeconds", "integer"]),
        ({"labelGuard": {"mode": "On"}}, ["/labelGuard/mode"]),
        ({"rings": {"Websites": RING}}, ["'Websites'", "pattern"]),
        ({"rings": {"websites": {"spec": RING}}}, ["/rings/websites", "'resources'"]),
        ({"rings": {"w" * 60: RING}}, [f"rings.{'w' * 60}.leaseNamespace", "too long", "name one"]),
        (other(args=[]), ["/controllers/websites", "oneOf"]),
        (other(rulez=[]), ["/controllers/websites", "'rulez'"]),
        (other(image={"repository": "x"}), ["/controllers/websites/image", "'tag'", "'digest'"]),
        (other(leaseNamespace="sites"), ["/controllers/websites", "'leaseNamespace'"]),
        ({"controllers": CONTROLLERS}, ["controllers.websites.ring", '"websites"', "externalRings"]),
        (
            {"controllers": CONTROLLERS, "externalRings": {"websites": RING}},
            ["externalRings.websites.leaseNamespace", '"websites"', "write the ring's"],
        ),
        (
            {"controllers": CONTROLLERS, "externalRings": {"websites": {**RING, "leaseNamespace": "*"}}},
            ["externalRings.websites.leaseNamespace", "is no namespace"],
        ),
        (
            other(leaseDurationSeconds=61),
            ["controllers.websites.leaseDurationSeconds", "61", "maxLeaseDurationSeconds", "60"],
        ),
    ],
)
async def test_wrong_values_are_refused_by_name(renderer: Helm, values: Doc, told: list[str]) -> None:
    with pytest.raises(HelmFailed) as refused:
        await renderer.template(values)
    for part in told:
        assert part in str(refused.value)


@pytest.mark.parametrize("field", ["rings", "controllers"])
async def test_the_lists_of_older_charts_are_refused_with_the_form_that_is_wanted(
    renderer: Helm, field: str
) -> None:
    older: Doc = {"rings": [{"name": "websites", "spec": RING}], "controllers": [{"name": "websites"}]}
    with pytest.raises(HelmFailed) as refused:
        await renderer.template({"rings": RINGS, "controllers": CONTROLLERS} | {field: older[field]})
    assert f"{field}: is a list, and has to be a map by name: write {field}: {{websites: {{" in str(
        refused.value
    )
    assert "CHANGELOG.md" in str(refused.value)


async def test_a_second_file_changes_one_value_of_one_controller(renderer: Helm) -> None:
    """What a list could not: Helm would replace it as a whole."""
    overlay = {"controllers": {"websites": {"image": {"tag": "2"}, "replicas": 0}}}
    objects = await renderer.template({"rings": RINGS, "controllers": CONTROLLERS}, overlay)
    (stateful,) = kinds(objects, "StatefulSet")
    assert stateful["spec"]["replicas"] == 0
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/websites:2"
    assert container["command"][-1] == CONTROLLER["target"]


async def test_a_second_file_leaves_a_name_out_and_an_empty_key_is_an_empty_map(renderer: Helm) -> None:
    first = {"rings": RINGS, "controllers": CONTROLLERS, "externalRings": {"other": DEPLOYMENTS}}
    none = {"rings": {"websites": None}, "controllers": {"websites": None}, "externalRings": {"other": None}}
    left_out = await renderer.template(first, none)
    empty = await renderer.template({"rings": None, "controllers": None, "externalRings": None})
    assert left_out == empty == await renderer.template({})


async def test_what_a_controller_leaves_out_comes_from_the_defaults(renderer: Helm) -> None:
    defaults = {"replicas": 7, "probes": False, "podDisruptionBudget": {"enabled": False}}
    values = {**other(replicas=2), "controllerDefaults": defaults}
    objects = await renderer.template(values)
    (stateful,) = kinds(objects, "StatefulSet")
    assert stateful["spec"]["replicas"] == 2
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert "livenessProbe" not in container
    assert len(kinds(objects, "PodDisruptionBudget")) == 1, "the sharder's"


async def test_fields_of_a_pod_are_laid_over_the_charts_and_take_none_away(renderer: Helm) -> None:
    """Every field of a PodSpec works, zeros and false too; a sidecar and a volume come beside the chart's own."""
    zeros = {
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": True,
        "automountServiceAccountToken": False,
    }
    both = {**POD, "pod": {**POD["pod"], **zeros}}
    values = {**other(**both), "sharder": both, "dashboard": {"enabled": True, **both}}
    workloads = [
        obj for obj in await renderer.template(values) if obj["kind"] in ("Deployment", "StatefulSet")
    ]
    assert len(workloads) == 3
    for workload in workloads:
        template = workload["spec"]["template"]
        spec = template["spec"]
        assert template["metadata"]["labels"]["team"] == "sites"
        assert template["metadata"]["annotations"] == {"a": "b"}
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert {name: spec[name] for name in zeros} == zeros
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": 5000,
        }
        assert [volume["name"] for volume in spec["volumes"]] == ["tmp", "more"]
        own, beside = spec["containers"]
        assert (own["securityContext"]["readOnlyRootFilesystem"], beside["name"]) == (True, "beside")


async def test_the_number_of_replicas_is_left_to_an_autoscaler(renderer: Helm) -> None:
    """An upgrade of the release must not undo what the autoscaler wrote."""
    (stateful,) = kinds(
        await renderer.template(other(scaling={"enabled": True, "kind": "none"})), "StatefulSet"
    )
    assert "replicas" not in stateful["spec"]


async def test_a_controller_may_live_in_a_namespace_of_its_own(renderer: Helm) -> None:
    """Who may create pods beside the replicas then reaches none but the replicas' account."""
    values = {**other(namespace="sites"), "networkPolicy": {"enabled": True}}
    objects = await renderer.template(values, namespace="system")
    theirs = {obj["kind"] for obj in objects if obj["metadata"].get("namespace") == "sites"}
    rights = {"ServiceAccount", "Role", "RoleBinding"}  # to ask whether the StatefulSet was scaled down
    assert theirs == {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy", *rights}
    subjects = [
        subject
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in kinds(objects, kind)
        for subject in binding["subjects"]
        if subject["name"] == "websites"
    ]
    assert {subject["namespace"] for subject in subjects} == {"sites"}
    accounts = [
        subject["serviceAccount"]
        for schema in kinds(objects, "FlowSchema")
        for subject in schema["spec"]["rules"][0]["subjects"]
    ]
    assert {"namespace": "sites", "name": "websites"} in accounts


def test_every_value_is_described_and_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text()
    told, defaults = dict(texts(text)), yaml.safe_load(text)
    assert list(told) == list(leaves(defaults, told))
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert paths(schema, schema) - set(told) == {"global"} | {
        f"controllerDefaults.{name}"
        for name in ("ring", "namespace", "image", "target", "command", "args", "rules", "unmodified")
    }, "these have no default"


def paths(schema: Doc, root: Doc, prefix: str = "") -> set[str]:
    """Every value that *schema* names and that has no named ones below it."""
    found = set()
    for name, one in schema["properties"].items():
        below = one
        while "$ref" in below:
            below = root["definitions"][below["$ref"].rpartition("/")[2]]
        is_whole = prefix == "controllerDefaults." and name in ("image", "unmodified")
        deeper = "properties" in below and not is_whole
        found |= paths(below, root, f"{prefix}{name}.") if deeper else {f"{prefix}{name}"}
    return found


def test_every_object_of_the_schema_is_closed() -> None:
    """But a ring's spec, which the API server checks."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_ones = [
        path for path, one in objects_of(schema, "") if "properties" in one and closed(one) is not False
    ]
    assert open_ones == ["/definitions/ring"]


def closed(schema: Doc) -> object:
    return schema.get("additionalProperties")


def objects_of(node: Any, path: str) -> list[tuple[str, Doc]]:
    if isinstance(node, list):
        return [found for number, one in enumerate(node) for found in objects_of(one, f"{path}/{number}")]
    if not isinstance(node, dict):
        return []
    below = [found for name, one in node.items() for found in objects_of(one, f"{path}/{name}")]
    return [(path, node)] * ("object" in node.get("type", ())) + below


def test_the_page_says_what_the_files_say() -> None:
    """If this fails: python scripts/values.py"""
    assert (ROOT / "docs" / "values.md").read_text() == page()
