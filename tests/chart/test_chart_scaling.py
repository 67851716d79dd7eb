"""The chart's autoscalers: the policy that was compared, accepted by the real API server; what turning them on does."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.real import BinariesMissing
from devcluster.real.binaries import find_binaries
from devcluster.real.real_plane import RealPlane
from devcluster.real.recipes import FORMER_HELM, helm_recipe
from kubeio.access.cluster import load_cluster
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from loadtest.autoscale import CHART
from loadtest.autoscaling.hpa import ScalingRules
from ringleader.testing.client import IndependentClient
from scripts.document import blocks_of
from tests.chart.helm import ROOT, Helm, HelmFailed
from tests.chart.manifests import dry_run, kinds
from tests.chart.running_pods import eventually
from tests.chart.websites import is_served

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Doc = dict[str, Any]
PAGE = ROOT / "docs" / "autoscaling.md"
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
NAMESPACE = "scaled"
LEASES = "scaled-leases"
STATEFULSETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
SCALED_OBJECTS = ApiResource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
HPA: Doc = {"enabled": True, "min": 2, "max": 12, "objectsPerReplica": 20_000}
SCALED_BY_KEDA: Doc = {**HPA, "kind": "keda", "prometheusAddress": "http://prometheus.monitoring:9090"}


def values(scaling: Doc | None = None, **changed: object) -> Doc:
    """A release without a sharder and without rings: one controller."""
    controller = {
        "image": {"repository": "registry.example.com/websites", "tag": "1"},
        "target": "/app/controller.py:websites",
        **changed,
    }
    if scaling is not None:
        controller["scaling"] = scaling
    return {
        "sharder": {"enabled": False},
        "externalRings": {"websites": {"leaseNamespace": LEASES}},
        "controllers": {"websites": controller},
    }


def as_rendered(rules: ScalingRules) -> Doc:
    """*rules* in the words of autoscaling/v2."""
    policies = [
        {"type": policy.type, "value": policy.value, "periodSeconds": policy.period_s}
        for policy in rules.policies
    ]
    return {
        "stabilizationWindowSeconds": rules.window_s,
        "tolerance": f"{rules.tolerance:g}",
        "policies": policies,
    }


async def test_the_autoscaler_follows_the_number_by_the_policy_that_was_compared(renderer: Helm) -> None:
    (hpa,) = kinds(await renderer.template(values(HPA)), "HorizontalPodAutoscaler")
    spec = hpa["spec"]
    assert spec["behavior"] == {"scaleUp": as_rendered(CHART.up), "scaleDown": as_rendered(CHART.down)}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 12)
    (metric,) = spec["metrics"]
    assert metric["external"]["metric"] == {
        "name": "ringleader:replicas:wanted",
        "selector": {"matchLabels": {"ring": "websites"}},
    }
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    (scaled,) = kinds(await renderer.template(values(SCALED_BY_KEDA)), "ScaledObject")
    assert scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == spec["behavior"]


@pytest.mark.parametrize("scaling", [HPA, SCALED_BY_KEDA], ids=["hpa", "keda"])
async def test_an_autoscaled_statefulset_names_no_number_and_has_time_to_leave(
    renderer: Helm, scaling: Doc
) -> None:
    objects = await renderer.template(values(scaling, replicas=5))
    (stateful,) = kinds(objects, "StatefulSet")
    assert "replicas" not in stateful["spec"]
    assert stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 300
    (scaler,) = kinds(objects, "HorizontalPodAutoscaler") + kinds(objects, "ScaledObject")
    target = scaler["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (stateful["apiVersion"], stateful["kind"])
    assert target["name"] == stateful["metadata"]["name"]


async def test_another_autoscaler_may_take_its_place(renderer: Helm) -> None:
    objects = await renderer.template(values({"enabled": True, "kind": "none"}))
    (stateful,) = kinds(objects, "StatefulSet")
    assert "replicas" not in stateful["spec"]
    assert not kinds(objects, "HorizontalPodAutoscaler") + kinds(objects, "ScaledObject")


@pytest.mark.parametrize("scaling", [None, {"enabled": False, **{k: HPA[k] for k in ("min", "max")}}])
async def test_without_scaling_the_number_is_the_charts(renderer: Helm, scaling: Doc | None) -> None:
    objects = await renderer.template(values(scaling, replicas=5))
    (stateful,) = kinds(objects, "StatefulSet")
    assert stateful["spec"]["replicas"] == 5
    assert stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 90
    assert not kinds(objects, "HorizontalPodAutoscaler") + kinds(objects, "ScaledObject")


async def test_the_rules_learn_how_many_objects_a_replica_takes(renderer: Helm) -> None:
    monitored = {**values(HPA), "monitoring": {"serviceMonitor": {"enabled": True}}}
    (rules,) = kinds(await renderer.template(monitored), "PrometheusRule")
    (group,) = rules["spec"]["groups"]
    assert group["rules"] == [
        {"record": "ringleader:objects_per_replica", "expr": "vector(20000)", "labels": {"ring": "websites"}}
    ]
    assert not kinds(await renderer.template(values(HPA)), "PrometheusRule")


@pytest.mark.parametrize(
    ("scaling", "parts"),
    [
        ({"enabled": True}, ["scaling.objectsPerReplica", "is missing", "20000"]),
        ({**HPA, "kind": "keda"}, ["scaling.prometheusAddress", "is empty", "http://"]),
        ({**HPA, "prometheusAddress": "prometheus:9090"}, ["/scaling/prometheusAddress"]),
        ({**HPA, "kind": "vpa"}, ["/scaling/kind", "hpa"]),
        ({**HPA, "min": 0}, ["/scaling/min"]),
        ({**HPA, "minimum": 2}, ["/scaling", "'minimum'"]),
        ({**HPA, "min": 13}, ["scaling.min", "13", "scaling.max", "12", "raise max"]),
    ],
)
async def test_wrong_values_are_refused_by_name(renderer: Helm, scaling: Doc, parts: list[str]) -> None:
    with pytest.raises(HelmFailed) as refused:
        await renderer.template(values(scaling))
    for part in parts:
        assert part in str(refused.value)


async def test_the_api_server_accepts_the_autoscaler_strictly(
    renderer: Helm, plane: RealPlane, admin: IndependentClient
) -> None:
    await admin.create_if_absent(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    objects = await renderer.template(values(HPA), namespace=NAMESPACE)
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        for obj in kinds(objects, "HorizontalPodAutoscaler"):
            await dry_run(admin, Discovery(client), obj)


async def keda_crds() -> Path:
    """KEDA's own CustomResourceDefinitions, from its Go module."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on PATH; install Go: KEDA's definition of ScaledObject comes from its module")
    process = await asyncio.create_subprocess_exec(
        go, "mod", "download", "-json", KEDA, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).anchor
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        pytest.skip(f"{KEDA} cannot be downloaded: {json.loads(out or b'{}').get('Error', '')}")
    return Path(json.loads(out)["Dir"], "config", "crd", "bases")


@pytest.mark.timeout(300)
async def test_kedas_own_definition_accepts_the_scaled_object_strictly(
    renderer: Helm, plane: RealPlane, admin: IndependentClient
) -> None:
    """KEDA itself is not run: its operator would need a cluster with pods."""
    definition = (await keda_crds()) / "keda.sh_scaledobjects.yaml"
    await admin.create_if_absent(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await admin.create_if_absent(CRDS, yaml.safe_load(definition.read_text()))
    await eventually(lambda: is_served(admin, SCALED_OBJECTS), within_s=30)
    objects = await renderer.template(values(SCALED_BY_KEDA), namespace=NAMESPACE)
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        for obj in kinds(objects, "ScaledObject"):
            await dry_run(admin, Discovery(client), obj)


@pytest.mark.parametrize(
    ("is_handed_over", "replicas"), [(False, 1), (True, 3)], ids=["at once", "handed over"]
)
async def test_turning_it_on_leaves_one_replica_unless_the_field_is_handed_over(
    helm: Helm, admin: IndependentClient, is_handed_over: bool, replicas: int
) -> None:
    """The trap of docs/autoscaling.md: a field that Helm gives up goes back to its default."""
    for name in (NAMESPACE, LEASES):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": name}})
    await helm.install("sites", values(), namespace=NAMESPACE)
    if is_handed_over:
        await hand_over(admin, 3)
    notes = await helm.upgrade("sites", values(HPA), namespace=NAMESPACE)
    assert "Turning it on" in notes
    found = await admin.get(STATEFULSETS, "websites", namespace=NAMESPACE)
    await helm.upgrade("sites", values(HPA), namespace=NAMESPACE)
    again = await admin.get(STATEFULSETS, "websites", namespace=NAMESPACE)
    await helm.uninstall("sites", namespace=NAMESPACE)
    assert found["spec"]["replicas"] == again["spec"]["replicas"] == replicas


async def test_helm_3_takes_the_field_away_once_whoever_owns_it(
    plane: RealPlane, admin: IndependentClient, tmp_path: Path
) -> None:
    """It compares manifests on the client's side, and knows no owners; what an autoscaler writes later stays."""
    try:
        binary = find_binaries(["helm"], helm_recipe(FORMER_HELM))["helm"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    helm = Helm(binary, tmp_path, plane.kubeconfig)
    for name in (NAMESPACE, LEASES):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": name}})
    await helm.install("sites", values(), namespace=NAMESPACE)
    await hand_over(admin, 3)
    await helm.upgrade("sites", values(HPA), namespace=NAMESPACE)
    found = await admin.get(STATEFULSETS, "websites", namespace=NAMESPACE)
    await admin.merge(STATEFULSETS, "websites", {"spec": {"replicas": 4}}, namespace=NAMESPACE)
    await helm.upgrade("sites", values(HPA), namespace=NAMESPACE)
    later = await admin.get(STATEFULSETS, "websites", namespace=NAMESPACE)
    await helm.uninstall("sites", namespace=NAMESPACE)
    assert (found["spec"]["replicas"], later["spec"]["replicas"]) == (1, 4)


async def test_turning_it_off_takes_the_field_back_by_force(helm: Helm, admin: IndependentClient) -> None:
    for name in (NAMESPACE, LEASES):
        await admin.create_if_absent(NAMESPACES, {"metadata": {"name": name}})
    await helm.install("sites", values(HPA), namespace=NAMESPACE)
    await hand_over(admin, 4)
    with pytest.raises(HelmFailed, match=r"conflict.*\.spec\.replicas"):
        await helm.upgrade("sites", values(), namespace=NAMESPACE)
    await helm.upgrade("sites", values(), namespace=NAMESPACE, flags=["--force-conflicts"])
    found = await admin.get(STATEFULSETS, "websites", namespace=NAMESPACE)
    await helm.uninstall("sites", namespace=NAMESPACE)
    assert found["spec"]["replicas"] == 3


async def hand_over(admin: IndependentClient, replicas: int) -> None:
    """Let another field manager own `spec.replicas`, as docs/autoscaling.md does with kubectl."""
    await admin.request(
        "PATCH",
        STATEFULSETS.path(namespace=NAMESPACE, name="websites"),
        query={"fieldManager": "handover", "force": "false"},
        body={
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "websites"},
            "spec": {"replicas": replicas},
        },
        content_type="application/apply-patch+yaml",
    )


async def test_the_pages_values_render_an_autoscaler_and_its_number(renderer: Helm) -> None:
    examples = [
        yaml.safe_load(block.body)
        for block in blocks_of(PAGE.read_text())
        if block.language == "yaml" and block.body.startswith("# values")
    ]
    assert len(examples) == 2
    for example, kind in zip(examples, ("HorizontalPodAutoscaler", "ScaledObject"), strict=True):
        objects = await renderer.template(example)
        assert len(kinds(objects, kind)) == 1
        assert len(kinds(objects, "PrometheusRule")) == 2
