"""The fence that the chart installs: the documents that `ringleader fence` prints, and the rights that go with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ringleader.__main__ import main
from tests.chart.guarded import CONTROLLER, RING, RING_VALUES, SYSTEM
from tests.chart.helm import Doc, Helm, HelmFailed

POLICY = "ValidatingAdmissionPolicy"
NAMES = [f"ringleader-fence-{RING}", f"ringleader-unlabelled-{RING}"]
ACCOUNT = {"namespace": "sites", "name": "websites"}


def values(ring: Doc | None, **controller: object) -> Doc:
    return {
        "rings": {RING: RING_VALUES},
        "controllers": {"web": {**CONTROLLER, **controller}},
        "labelGuard": {"mode": "Off"},
        "fence": {"rings": {RING: ring}},
    }


def policies(docs: list[Doc]) -> list[Doc]:
    """The policies and bindings among *docs*, without the labels that only a release has."""
    found = [doc for doc in docs if doc["kind"].startswith(POLICY)]
    for doc in found:
        doc["metadata"]["labels"] = {"ringleader.dev/ring": doc["metadata"]["labels"]["ringleader.dev/ring"]}
    return sorted(found, key=lambda doc: (doc["kind"], doc["metadata"]["name"]))


@pytest.mark.parametrize("domain", ["", "shards.example.com"])
@pytest.mark.parametrize("identity", ["life", "pod"])
async def test_the_chart_installs_what_the_command_prints(
    renderer: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str], identity: str, domain: str
) -> None:
    spec = {**RING_VALUES, **({"labelDomain": domain} if domain else {})}
    fence = {"identity": identity, **({"accounts": [ACCOUNT]} if identity == "pod" else {})}
    chart = policies(await renderer.template({**values(fence), "rings": {RING: spec}}))
    manifest = {"metadata": {"name": RING}, "spec": {"leaseNamespace": "x", **spec}}
    ring = tmp_path / "ring.yaml"
    ring.write_text(
        yaml.safe_dump({"apiVersion": "ringleader.dev/v1alpha1", "kind": "ControllerRing", **manifest})
    )
    words = ["fence", RING, "--ring-file", str(ring), "--identity", identity]
    assert main([*words, *(["--account", "sites/websites"] if identity == "pod" else [])]) == 0
    printed = capsys.readouterr().out
    assert "$(" not in printed.replace("$(...)", "")
    assert policies(list(yaml.safe_load_all(printed))) == chart
    assert [doc["metadata"]["name"] for doc in chart if doc["kind"] == POLICY] == NAMES


async def test_without_the_value_there_is_no_fence_and_no_right_to_act_as_another(renderer: Helm) -> None:
    docs = await renderer.template(values(None))
    assert policies(docs) == []
    assert "impersonate" not in yaml.safe_dump(docs)
    (pod,) = [doc for doc in docs if doc["kind"] == "StatefulSet"]
    assert not any("fence" in word for word in pod["spec"]["template"]["spec"]["containers"][0]["args"])


async def test_replicas_under_policies_may_act_as_themselves_with_a_life_of_their_ring(
    renderer: Helm,
) -> None:
    docs = await renderer.template(values({"identity": "life"}, fence="policy"))
    (pod,) = [doc for doc in docs if doc["kind"] == "StatefulSet"]
    assert "--fence=policy" in pod["spec"]["template"]["spec"]["containers"][0]["args"]
    rules = [
        (doc["kind"], doc["metadata"].get("namespace"), rule)
        for doc in docs
        if doc["kind"] in ("Role", "ClusterRole")
        for rule in doc["rules"]
        if "impersonate" in rule["verbs"]
    ]
    extras = [f"userextras/life.ringleader.dev/{RING}"]
    itself = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["web"]}
    assert rules == [
        (
            "ClusterRole",
            None,
            {"apiGroups": ["authentication.k8s.io"], "resources": extras, "verbs": ["impersonate"]},
        ),
        ("Role", SYSTEM, {**itself, "verbs": ["impersonate"]}),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (values(None, fence="policy"), r"controllers\.web\.fence: is policy, and its ring has no policies"),
        (
            values({"identity": "pod", "accounts": [ACCOUNT]}, fence="policy"),
            r"controllers\.web\.fence: is policy, and its ring has no policies",
        ),
        (values({"identity": "pod"}), r"fence\.rings\.websites\.accounts: is empty"),
        (
            {**values(None), "fence": {"rings": {"shops": {"identity": "life"}}}},
            r"fence\.rings\.shops: is no ring of this release",
        ),
    ],
)
async def test_what_cannot_work_is_refused_with_the_remedy(renderer: Helm, changed: Doc, said: str) -> None:
    with pytest.raises(HelmFailed, match=said):
        await renderer.template(changed)
