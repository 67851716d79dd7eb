"""What pods of the chart may do to their node and to the API server, before anybody changes a value."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from kubeio.resource import NAMESPACES
from ringleader.testing.client import IndependentClient
from scripts.document import blocks_of
from tests.chart.example_values import CONTROLLERS, DEPLOYMENTS_RING, RINGS, UNMODIFIED
from tests.chart.helm import ROOT, Helm
from tests.chart.manifests import RESTRICTED, kinds, pod_of

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Doc = dict[str, Any]
CONTAINERFILE = ROOT / "manifests" / "Containerfile"


async def test_every_pod_passes_the_restricted_standard(renderer: Helm, admin: IndependentClient) -> None:
    await admin.create_if_absent(
        NAMESPACES, {"metadata": {"name": "strict", "labels": {RESTRICTED: "restricted"}}}
    )
    values: Doc = {
        "rings": {**RINGS, "deployments": DEPLOYMENTS_RING},
        "controllers": {**CONTROLLERS, "deployments": {**UNMODIFIED, "fence": "none"}},
        "dashboard": {"enabled": True},
    }
    workloads = [
        obj
        for obj in await renderer.template(values, namespace="strict")
        if obj["kind"] in ("Deployment", "StatefulSet")
    ]
    hooks = kinds(await renderer.hooks(values, namespace="strict"), "Pod")
    pods = [*(pod_of(workload) for workload in workloads), *hooks]
    assert len(pods) == 5
    for pod in pods:
        await admin.request("POST", "/api/v1/namespaces/strict/pods", query={"dryRun": "All"}, body=pod)
        (container,) = pod["spec"]["containers"]
        for each in (container, *pod["spec"].get("initContainers", [])):
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            named = {"runAsUser", "runAsGroup", "fsGroup"}
            assert not named & (pod["spec"]["securityContext"].keys() | each["securityContext"].keys()), (
                "OpenShift gives each namespace user and group of its own"
            )


async def test_the_image_runs_as_a_user_that_is_a_number_and_not_root() -> None:
    """The kubelet compares numbers only: `runAsNonRoot` refuses a name."""
    (user,) = re.findall(r"^USER (\d+):\d+$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert int(user) > 0


async def test_no_account_mounts_its_token_unasked_and_no_two_workloads_share_one(renderer: Helm) -> None:
    values: Doc = {"rings": RINGS, "controllers": CONTROLLERS, "dashboard": {"enabled": True}}
    objects = await renderer.template(values)
    accounts = kinds(objects, "ServiceAccount")
    assert [account["automountServiceAccountToken"] for account in accounts] == [False] * 3
    used = [
        obj["spec"]["template"]["spec"]["serviceAccountName"]
        for obj in kinds(objects, "Deployment") + kinds(objects, "StatefulSet")
    ]
    assert sorted(used) == sorted(account["metadata"]["name"] for account in accounts)


async def test_a_test_of_the_release_runs_our_own_image_only_when_asked_for(renderer: Helm) -> None:
    hooks = await renderer.hooks({"rings": RINGS})
    assert {hook["metadata"]["annotations"]["helm.sh/hook"] for hook in hooks} == {"test"}
    policies = {hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for hook in hooks}
    assert policies == {"before-hook-creation,hook-succeeded"}
    (pod,) = kinds(hooks, "Pod")
    (deployment,) = kinds(await renderer.template({"rings": RINGS}), "Deployment")
    images = [
        spec["containers"][0]["image"] for spec in (pod["spec"], deployment["spec"]["template"]["spec"])
    ]
    assert images[0] == images[1]
    verbs = {verb for role in kinds(hooks, "ClusterRole") for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "create"}, "create: of subjectaccessreviews"


async def test_the_test_of_the_release_may_do_what_the_page_of_check_lists(renderer: Helm) -> None:
    page = (ROOT / "docs" / "inspect" / "check.md").read_text()
    (listed,) = (
        yaml.safe_load(block.body)
        for block in blocks_of(page)
        if block.body.startswith("kind: ClusterRole\n")
    )
    (role,) = kinds(await renderer.hooks({"rings": RINGS}), "ClusterRole")
    assert rights(role) == rights(listed)


def rights(role: Doc) -> set[tuple[str, str, str]]:
    """Group, resource and verb of each right; a URL stands for group and resource."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule.get("apiGroups", ["URL"])
        for resource in rule.get("resources", rule.get("nonResourceURLs"))
        for verb in rule["verbs"]
    }
