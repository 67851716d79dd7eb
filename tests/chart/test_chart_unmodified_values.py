"""Values of unmodified controllers: what is rendered of them, and combinations that cannot work."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.runtime import command
from proxy.settings import read_settings
from ringleader.testing.containers import Images, environment_of
from ringleader.unmodified.command import run_render
from tests.chart.example_values import (
    CONTROLLER,
    DEPLOYMENTS_RING,
    POD,
    RING,
    UNMODIFIED,
    UNMODIFIED_RELEASE,
)
from tests.chart.helm import Helm, HelmFailed
from tests.chart.manifests import kinds

pytestmark = [pytest.mark.real]

Doc = dict[str, Any]


async def pod_of(renderer: Helm, values: Doc) -> Doc:
    (stateful,) = kinds(await renderer.template(values), "StatefulSet")
    spec: Doc = stateful["spec"]["template"]["spec"]
    return spec


def with_values(ring: Doc | None = None, **changed: object) -> Doc:
    """The release, but for what is *changed* of its controller and *ring*."""
    rings = {"deployments": {**DEPLOYMENTS_RING, **(ring or {})}}
    return {**UNMODIFIED_RELEASE, "rings": rings, "controllers": {"deployments": {**UNMODIFIED, **changed}}}


async def test_the_proxy_understands_the_chart_s_command(renderer: Helm, monkeypatch: Any) -> None:
    pod = await pod_of(renderer, UNMODIFIED_RELEASE)
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.com/manager:1"
    environment = environment_of(
        {"metadata": {"name": "deployments-0", "namespace": "n", "uid": "u"}}, container
    )
    words = Images().command(container, environment, address="127.0.0.1")
    assert words[:8] == [*command("/ringleader"), "-m", "proxy"]
    monkeypatch.setattr("shutil.which", lambda _: "/manager")  # it is not on this machine
    settings = read_settings(words[8:])
    assert settings.command == ("/manager", "--leader-elect", "--name=deployments-0")
    assert (settings.ring, settings.member, settings.hold) == ("deployments", "deployments-0", True)
    assert settings.leaves == {"pods"}
    assert settings.locks == ("manager.example.com",)
    assert (settings.stop_within_s, settings.termination_grace_s) == (30, 90)
    assert settings.controller_readiness == "http://127.0.0.1:8081/readyz"
    assert settings.controller_liveness == "http://127.0.0.1:8081/healthz"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(settings.controller_files), str(settings.service_account), "/ringleader", "/tmp"} == mounts


async def test_no_token_is_mounted_where_the_controller_looks_for_one(renderer: Helm) -> None:
    """A mount of its own at that place keeps the API server from adding the token; other containers get theirs."""
    pod = await pod_of(renderer, UNMODIFIED_RELEASE)
    (init,) = pod["initContainers"]
    assert [mount["name"] for mount in init["volumeMounts"]] == ["ringleader"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]
    (own,) = (m for m in container["volumeMounts"] if m["mountPath"].endswith("kubernetes.io/serviceaccount"))
    assert "emptyDir" in volumes[own["name"]], "where clients look for a token, the proxy writes its own"


async def test_containers_and_volumes_of_the_values_come_beside_the_chart_s(renderer: Helm) -> None:
    init = {"name": "first", "image": "registry.example.com/first:1"}
    pod = await pod_of(renderer, with_values(pod={**POD["pod"], "initContainers": [init]}))
    assert [each["name"] for each in pod["initContainers"]] == ["ringleader", "first"]
    assert [each["name"] for each in pod["containers"]] == ["controller", "beside"]
    assert {"tmp", "ringleader", "more"} <= {each["name"] for each in pod["volumes"]}


async def test_probes_and_metrics_have_a_port_that_its_controller_does_not_use(renderer: Helm) -> None:
    monitoring: Doc = {"from": [{"podSelector": {}}]}
    values = {**UNMODIFIED_RELEASE, "networkPolicy": {"enabled": True}, "monitoring": monitoring}
    objects = await renderer.template(values)
    (service,) = (one for one in kinds(objects, "Service") if one["metadata"]["name"] == "deployments")
    assert [port["port"] for port in service["spec"]["ports"]] == [8091]
    (policy,) = (one for one in kinds(objects, "NetworkPolicy") if one["metadata"]["name"] == "deployments")
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": 8091}]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            with_values(target=CONTROLLER["target"]),
            "controllers.deployments.unmodified: is set, and target too",
        ),
        (
            {
                **UNMODIFIED_RELEASE,
                "controllers": {"deployments": {k: v for k, v in UNMODIFIED.items() if k != "command"}},
            },
            "controllers.deployments.command: is missing",
        ),
        (
            with_values(extraArgs=["--workers=2"]),
            "controllers.deployments.extraArgs: are flags of a replica",
        ),
        (
            {**UNMODIFIED_RELEASE, "fence": {}},
            "controllers.deployments.fence: is policy, and its ring has no policies about lives",
        ),
        (
            with_values(terminationGracePeriodSeconds=44),
            "controllers.deployments.terminationGracePeriodSeconds: 44 is too short for stopWithinSeconds (30)",
        ),
        (
            with_values(unmodified={"resources": ["pods"]}),
            'unmodified.resources: "pods" is not distributed by the ring "deployments": use some of deployments.apps,',
        ),
        (
            with_values(unmodified={"leaves": ["pod"]}),
            'unmodified.leaves: "pod" is controlled by nothing in the ring "deployments": '
            "use some of replicasets.apps, pods",
        ),
        (
            with_values({"key": "Object"}),
            'rings.deployments.key: "Object" tears trees apart, since replicasets.apps may control other',
        ),
        (
            {
                "rings": {"websites": RING},
                "controllers": {"websites": {**UNMODIFIED, "unmodified": {}}},
            },
            'rings.websites.key: "" tears trees apart, since configmaps may control other objects',
        ),
        (with_values(unmodified={"lock": []}), "'lock'"),
    ],
)
async def test_what_cannot_work_is_refused_with_the_remedy(renderer: Helm, values: Doc, told: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        await renderer.template(values)
    assert told in str(refused.value)


async def test_flags_of_replicas_in_the_defaults_are_not_the_proxy_s(renderer: Helm) -> None:
    values = {**UNMODIFIED_RELEASE, "controllerDefaults": {"extraArgs": ["--workers=16"]}}
    assert await pod_of(renderer, values) == await pod_of(renderer, UNMODIFIED_RELEASE)


async def test_a_ring_of_leaves_needs_no_key(renderer: Helm) -> None:
    unmodified = {"leaves": ["configmaps"]}
    values = {
        "rings": {"websites": RING},
        "controllers": {"websites": {**UNMODIFIED, "unmodified": unmodified, "fence": "none"}},
    }
    assert (await pod_of(renderer, values))["initContainers"]


async def test_the_command_line_renders_what_the_chart_renders(
    renderer: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One text, and two that fill it: the workload of the chart without its proxy gets the same one."""
    objects = await renderer.template(UNMODIFIED_RELEASE, namespace="system")
    (stateful,) = kinds(objects, "StatefulSet")
    before = copy.deepcopy(stateful)
    wanted = stateful["spec"]["template"]["spec"]
    pod = before["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"], container["args"] = UNMODIFIED["command"], UNMODIFIED["args"]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] == "tmp"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] == "tmp"]
    for name in ("env", "ports"):
        del container[name]
    for name, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        container[name] = {"httpGet": {"path": path, "port": 8081}}
    del pod["initContainers"]
    manifest, ring = tmp_path / "manifest.yaml", tmp_path / "ring.yaml"
    manifest.write_text(yaml.safe_dump(before))
    ring.write_text(yaml.safe_dump(kinds(objects, "ControllerRing")[0]))
    flags = ["--lease-duration=15s", "--stop-within=30s", "--log-level=info", "--fence=policy"]
    flags += ["--leaves=pods", "--companions=endpoints=deployments.apps", "--locks=manager.example.com"]
    assert run_render(["--render", str(manifest), "--ring-file", str(ring), *flags]) == 0
    rendered, *rights = yaml.safe_load_all(capsys.readouterr().out)
    found = rendered["spec"]["template"]["spec"]
    for each in (found, wanted):
        each["containers"][0]["args"] = sorted(each["containers"][0]["args"])
        each["volumes"] = sorted(each["volumes"], key=itemgetter("name"))
    assert found == wanted
    assert granted(rights) == granted(
        [
            one
            for one in objects
            if one["kind"] in ("Role", "ClusterRole") and "ringleader-deployments" in one["metadata"]["name"]
        ],
        without=UNMODIFIED["rules"],
    )


def granted(objects: list[Doc], without: Sequence[Doc] = ()) -> list[Doc]:
    """The rules of every role of *objects*, but for those *without*."""
    rules = [rule for one in objects if "rules" in one for rule in one["rules"] if rule not in without]
    return sorted(rules, key=str)
