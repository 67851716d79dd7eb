"""The ring, the command line and the report; the settings."""

from __future__ import annotations

import shlex
import sys

import msgspec
import pytest
import yaml

from kubeio.errors import InputError
from kubeio.shard.ring import RingView
from proxy.learn.findings import Verdict
from proxy.learn.report import make_report, report_text
from proxy.learn.seen import Seen
from proxy.learn.settings import read_learn_settings
from proxy.settings import read_settings
from tests.proxy.learn.requests import KUBE_CONTROLLER_MANAGER, ask, deployments, watches

RESOURCES = [
    {
        "group": "apps",
        "resource": "deployments",
        "controlledResources": [{"group": "apps", "resource": "replicasets"}],
    },
    {"group": "apps", "resource": "replicasets", "controlledResources": [{"resource": "pods"}]},
]


def websites(*targets: str) -> Seen:
    seen = watches(Seen(), *targets)
    ask(seen, "PUT", "/apis/example.com/v1/namespaces/sites/websites/x/status", {})
    return seen


def test_the_ring_has_an_entry_for_each_kind_that_controls_others() -> None:
    ring = make_report(deployments(), KUBE_CONTROLLER_MANAGER).ring
    assert ring is not None
    assert ring["spec"] == {
        "leaseNamespace": "deployments-rings",
        "key": "Owner",
        "maxInFlight": 10_000,
        "maxInFlightPerOwner": 10_000,
        "resources": RESOURCES,
    }
    view = msgspec.convert(ring, RingView)
    assert view.spec.key == "Owner"


def test_a_flat_tree_needs_no_key_owner() -> None:
    ring = make_report(websites("/apis/example.com/v1/websites"), ["/manager"]).ring
    assert ring is not None
    assert "key" not in ring["spec"]
    assert ring["spec"]["resources"] == [{"group": "example.com", "resource": "websites"}]


def test_a_controller_that_reads_some_namespaces_gets_a_ring_of_those() -> None:
    ring = make_report(websites("/apis/example.com/v1/namespaces/sites/websites"), ["/manager"]).ring
    assert ring is not None
    wanted = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["sites"]}
    assert ring["spec"]["namespaceSelector"] == {"matchExpressions": [wanted]}


def two_trees(*, namespace: str = "") -> Seen:
    where = f"namespaces/{namespace}/" if namespace else ""
    seen = websites(f"/apis/example.com/v1/{where}websites")
    watches(seen, "/apis/example.com/v1/shops")
    ask(seen, "PUT", "/apis/example.com/v1/namespaces/sites/shops/x/status", {})
    seen.kind("configmaps").created["shops.example.com"] = 2
    return seen


def test_a_controller_of_several_trees_gets_one_ring_for_all() -> None:
    report = make_report(two_trees(namespace="sites"), (sys.executable,))
    assert report.roots == ["shops.example.com", "websites.example.com"]
    assert report.ring is not None
    spec = report.ring["spec"]
    assert spec["resources"] == [
        {"group": "example.com", "resource": "shops", "controlledResources": [{"resource": "configmaps"}]},
        {"group": "example.com", "resource": "websites"},
    ]
    assert "namespaceSelector" not in spec  # shops are read everywhere
    settings = read_settings(report.command[2:])
    assert (settings.ring, settings.resources, settings.leaves) == ("shops", (), frozenset({"configmaps"}))


def test_objects_that_name_others_stay_together_by_namespace() -> None:
    seen = two_trees()
    seen.kind("websites.example.com").named["shops.example.com"] = "spec.shopRef: a"
    seen.kind("websites.example.com").named["nodes"] = "spec.nodeName: x"
    report = make_report(seen, (sys.executable,))
    assert (report.verdict, report.classes) == (Verdict.CARE, ["A", "H"])
    assert report.ring is not None
    assert report.ring["spec"]["key"] == "Namespace"


def test_deep_trees_that_name_each_other_have_no_key() -> None:
    seen = deployments()
    seen.kind("deployments.apps").named["deployments.apps"] = "spec.dependsOn: b"
    report = make_report(seen, KUBE_CONTROLLER_MANAGER)
    assert (report.verdict, report.classes) == (Verdict.UNCLEAR, ["A", "H"])
    (finding,) = [each for each in report.findings if each.letter == "H"]
    assert "leave deployments.apps out of the ring" in finding.remedy


def test_the_command_line_is_one_that_the_proxy_takes() -> None:
    command = (sys.executable, "--kubeconfig={kubeconfig}", "-c", "a b")
    report = make_report(deployments(), command)
    settings = read_settings(report.command[2:])
    assert report.command[:2] == ["ringleader", "proxy"]
    assert (settings.ring, settings.resources) == ("deployments", ())
    assert (settings.leaves, settings.locks) == (frozenset({"pods"}), ("manager",))
    assert settings.command == command


def test_the_text_ends_with_the_ring_and_the_command_as_a_shell_takes_it() -> None:
    report = make_report(deployments(), KUBE_CONTROLLER_MANAGER)
    text = report_text(report)
    *_, document, command = text.split("\n\n")
    assert yaml.safe_load(document) == report.ring
    assert shlex.split(command, comments=True) == report.command
    assert text.startswith("May it be sharded: yes (class A)")


def test_what_must_not_be_sharded_gets_no_ring_and_what_is_unclear_gets_one_with_a_condition() -> None:
    seen = deployments()
    seen.kind("pods").writes["create eviction"] = 1
    report = make_report(seen, KUBE_CONTROLLER_MANAGER)
    assert (report.ring, report.command) == (None, [])
    seen = deployments()
    seen.exit_code = 1
    assert "# Only if nothing of the above speaks against it:" in report_text(
        make_report(seen, KUBE_CONTROLLER_MANAGER)
    )


def test_settings_name_the_time_the_form_and_the_command() -> None:
    settings = read_learn_settings(
        ["--learn", "--minutes", "0.5", "--output", "json", "--", sys.executable, "-V"]
    )
    assert (settings.seconds, settings.output, settings.command) == (30.0, "json", (sys.executable, "-V"))
    assert read_learn_settings(["--learn", "--", sys.executable]).seconds is None


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--learn", "--minutes", "0", "--", sys.executable], "--minutes"),
        (["--learn", "--minutes", "nan", "--", sys.executable], "--minutes"),
        (["--learn", "--output", "xml", "--", sys.executable], "--output"),
        (["--learn", "--minutes", "1"], "COMMAND"),
        (["--learn", "--", "/no/such/program"], "COMMAND"),
    ],
)
def test_settings_that_cannot_be_used_are_named(words: list[str], field: str) -> None:
    with pytest.raises(InputError) as error:
        read_learn_settings(words)
    assert error.value.field == field
