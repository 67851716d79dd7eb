"""Rings as people write them: what is accepted, and the words in which the rest is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kubeio.models import GroupResource
from sharder.errors import FieldProblem, RingRefused
from sharder.ringspec.parsing import immutable_changes, parse_ring, parse_spec, worked_as
from sharder.ringspec.spec import (
    DrainPolicy,
    KeyKind,
    LabelSelector,
    LeaseRef,
    MemberSpec,
    Pace,
    Requirement,
    RingResource,
    RingSpec,
)
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.ring_documents import ring


def problems_of(document: dict[str, Any]) -> list[FieldProblem]:
    with pytest.raises(RingRefused) as refused:
        parse_ring(document)
    return list(refused.value.problems)


@pytest.mark.parametrize("changes", [{}, {"imbalancePercent": "much", "zzz": 1}, {"resources": []}], ids=str)
@pytest.mark.parametrize("name", ["websites", "Web_Sites", ""])
def test_the_spec_of_a_ring_in_the_cluster_is_read_and_refused_like_a_file(
    changes: dict[str, Any], name: str
) -> None:
    document = {**ring(**changes), "metadata": {"name": name}}
    if not changes and name == "websites":
        assert parse_spec(name, document["spec"]) == parse_ring(document)
        return
    with pytest.raises(RingRefused) as refused:
        parse_spec(name, document["spec"])
    assert list(refused.value.problems) == problems_of(document)


@pytest.mark.parametrize("spec", [None, [], "text", 3], ids=str)
def test_a_spec_of_another_type_is_refused_with_the_same_message(spec: object) -> None:
    with pytest.raises(RingRefused) as refused:
        parse_spec("websites", spec)
    assert list(refused.value.problems) == problems_of({"metadata": {"name": "websites"}, "spec": spec})


def requiring(**requirement: Any) -> dict[str, Any]:
    return {"namespaceSelector": {"matchExpressions": [{"key": "a", **requirement}]}}


def the_problem_of(document: dict[str, Any]) -> FieldProblem:
    (problem,) = problems_of(document)
    return problem


def test_a_small_ring_gets_the_defaults_of_the_protocol() -> None:
    assert parse_ring(ring()) == RingSpec(
        name="websites",
        lease_namespace="ring-system",
        resources=(
            RingResource(GroupResource("example.com", "websites"), (GroupResource("", "configmaps"),)),
        ),
    )


def test_every_field_arrives() -> None:
    spec = parse_ring(
        ring(
            namespaceSelector={
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
            },
            labelDomain="alpha.sharding.timebertt.dev",
            algorithm="v1",
            virtualNodes=100,
            imbalancePercent=10,
            members={"web-0": {"weight": 2}, "web-1": {"cordoned": True}},
            holdSeconds=30,
            settleSeconds=0.5,
            minMembers=2,
            startDelaySeconds=5,
            maxLeaseDurationSeconds=30,
            maxInFlight=10,
            maxInFlightPerOwner=5,
            drainTimeoutSeconds=20,
            drainPolicy="Force",
            assignAtAdmission=True,
            auditIntervalSeconds=600,
            key="Label",
            keyLabel="example.com/tenant",
            paused=True,
            pace="Urgent",
            activation={"lease": {"namespace": "shop", "name": "shop-controller"}},
        )
    )
    assert spec == RingSpec(
        name="websites",
        lease_namespace="ring-system",
        resources=parse_ring(ring()).resources,
        namespace_selector=LabelSelector({"team": "a"}, (Requirement("env", "In", ("prod",)),)),
        label_domain="alpha.sharding.timebertt.dev",
        virtual_nodes=100,
        eps=0.1,
        members={"web-0": MemberSpec(weight=2), "web-1": MemberSpec(cordoned=True)},
        hold_s=30,
        settle_s=0.5,
        min_members=2,
        start_delay_s=5,
        max_lease_duration_s=30,
        max_in_flight=10,
        max_in_flight_per_owner=5,
        drain_timeout_s=20,
        drain_policy=DrainPolicy.FORCE,
        audit_interval_s=600,
        key=KeyKind.LABEL,
        key_label="example.com/tenant",
        paused=True,
        pace=Pace.URGENT,
        assign_at_admission=True,
        activation=LeaseRef("shop", "shop-controller"),
    )
    covered = {field.name for field in dataclasses.fields(RingSpec)} - {"algorithm"}
    defaults = parse_ring(ring())
    same = {name for name in covered if getattr(spec, name) == getattr(defaults, name)}
    assert same == {"name", "lease_namespace", "resources"}


@pytest.mark.parametrize(
    ("spec", "field", "problem", "remedy"),
    [
        ({"imbalancePercent": 0}, "imbalancePercent", "too small", "from 1 to 100"),
        ({"pace": "urgent"}, "pace", "not known", "did you mean 'Urgent'? use Background, Normal, Urgent"),
        ({"imbalancePercent": -5}, "imbalancePercent", "too small", "from 1"),
        ({"imbalancePercent": 101}, "imbalancePercent", "too large", "to 100"),
        ({"imbalancePercent": float("nan")}, "imbalancePercent", "not a whole number", "default 5"),
        ({"imbalancePercent": "small"}, "imbalancePercent", "a string, not a number", "default 5"),
        ({"imbalancePercent": 0.5}, "imbalancePercent", "not a whole number", "default 5"),
        ({"holdSeconds": 1.5}, "holdSeconds", "not a whole number", "default 0"),
        ({"virtualNodes": 0}, "virtualNodes", "too small", "from 1"),
        ({"virtualNodes": True}, "virtualNodes", "a boolean, not a number", "whole number"),
        ({"virtualNodes": 1.5}, "virtualNodes", "not a whole number", "whole number"),
        ({"virtualNodes": 20_000}, "virtualNodes", "too large", "10000"),
        (
            {"virtualNodes": 10_000, "members": {f"m{i}": {"weight": 100} for i in range(3)}},
            "virtualNodes",
            "3,000,000 tokens",
            "at most 6667",
        ),
        ({"leaseNamespace": None}, "leaseNamespace", "missing", "no default"),
        ({"leaseNamespace": "a/b"}, "leaseNamespace", "cannot be a namespace", "lower-case"),
        ({"leaseNamespace": 7}, "leaseNamespace", "a number, not a string", "quotes"),
        ({"labelDomain": "Not A Domain"}, "labelDomain", "prefix of a label key", "DNS name"),
        ({"labelDomain": "a." * 124 + "a"}, "labelDomain", "prefix of a label key", "247"),
        ({"labelDomain": "shop.k8s.io"}, "labelDomain", "belongs to Kubernetes", "your own"),
        ({"algorithm": "v2"}, "algorithm", "not known", "'v1'"),
        ({"key": "Label"}, "keyLabel", "is missing", "name the label"),
        ({"keyLabel": "tenant"}, "keyLabel", "does not fit key Object", "use key: Label"),
        ({"key": "Label", "keyLabel": "a/b/c"}, "keyLabel", "key of a label", "at most 63"),
        ({"key": "Label", "keyLabel": "-a"}, "keyLabel", "key of a label", "at most 63"),
        ({"key": "object"}, "key", "not known", "did you mean 'Object'"),
        ({"drainPolicy": "Forced"}, "drainPolicy", "not known", "did you mean 'Force'"),
        ({"assignAtAdmission": "no"}, "assignAtAdmission", "a string, not a boolean", "true or false"),
        ({"virtualNode": 5}, "virtualNode", "not a field", "did you mean 'virtualNodes'"),
        ({"zzz": 5}, "zzz", "not a field", "known here: "),
        ({"members": {"m": {"wieght": 1}}}, "members.m.wieght", "not a field", "'weight'"),
        ({"members": {"m": {"weight": 0}}}, "members.m.weight", "too small", "from 0.001"),
        ({"members": {"m": {"weight": 1.23456}}}, "members[m].weight", "", "three places"),
        ({"members": ["m"]}, "members", "a list, not a mapping", "fields below it"),
        ({"settleSeconds": -1}, "settleSeconds", "too small", "from 0"),
        ({"settleSeconds": "2s"}, "settleSeconds", "a string, not a number", "default 2"),
        ({"maxLeaseDurationSeconds": 0}, "maxLeaseDurationSeconds", "too small", "from 1"),
        ({"maxLeaseDurationSeconds": 86400}, "maxLeaseDurationSeconds", "too large", "3600"),
        ({"minMembers": 0}, "minMembers", "too small", "from 1"),
        ({"drainTimeoutSeconds": float("inf")}, "drainTimeoutSeconds", "not a whole number", "default 60"),
        ({"resources": []}, "resources", "empty", "at least one"),
        ({"resources": "websites"}, "resources", "a string, not a list", "dash"),
        ({"resources": [{"group": "x.io"}]}, "resources[0].resource", "missing", "no default"),
        ({"resources": [{"resource": "Websites"}]}, "resources[0].resource", "cannot be", "plural"),
        ({"resources": [{"resource": "pods/status"}]}, "resources[0].resource", "cannot be", "plural"),
        ({"resources": [{"group": "Example", "resource": "x"}]}, "resources[0].group", "API group", "core"),
        ({"resources": [{"resource": "pods", "kind": "Pod"}]}, "resources[0].kind", "not a field", ""),
        (
            {"resources": [{"resource": "pods"}, {"resource": "pods"}]},
            "resources[1].resource",
            "twice (pods)",
            "merge",
        ),
        (
            {"resources": [{"resource": "pods", "controlledResources": [{"resource": "secrets"}] * 2}]},
            "resources[0].controlledResources[1].resource",
            "twice (secrets)",
            "remove one",
        ),
        (
            {
                "resources": [
                    {
                        "group": "apps",
                        "resource": "deployments",
                        "controlledResources": [{"resource": "pods"}],
                    },
                    {"resource": "pods"},
                ]
            },
            "resources",
            "two keys",
            "use key: Owner",
        ),
        (
            {"resources": [{"group": "coordination.k8s.io", "resource": "leases"}]},
            "resources[0].resource",
            "keeps the ring itself",
            "leave it out",
        ),
        ({"activation": {}}, "activation.lease", "missing", "leader-election Lease"),
        ({"activation": {"lease": {"namespace": "a"}}}, "activation.lease.name", "missing", "no default"),
        (
            {"activation": {"lease": {"namespace": "a", "name": "A b"}}},
            "activation.lease.name",
            "name of a Lease",
            "lower-case",
        ),
        (
            requiring(operator="in", values=["x"]),
            "namespaceSelector.matchExpressions[0].operator",
            "not known",
            "did you mean 'In'",
        ),
        (
            requiring(operator="In"),
            "namespaceSelector.matchExpressions[0].values",
            "does not fit In",
            "at least one",
        ),
        (
            {"namespaceSelector": {"matchLabel": {"a": "b"}}},
            "namespaceSelector.matchLabel",
            "not a field",
            "'matchLabels'",
        ),
        ({"namespaceSelector": {"matchLabels": {"a": 1}}}, "namespaceSelector.matchLabels.a", "", "quotes"),
    ],
)
def test_what_cannot_be_worked_is_refused_with_field_problem_and_remedy(
    spec: dict[str, Any], field: str, problem: str, remedy: str
) -> None:
    found = problems_of(ring(**spec))
    field = f"spec.{field}"
    match = [p for p in found if p.field == field]
    assert match, f"{field} is not among {[str(p) for p in found]}"
    assert problem in match[0].problem
    assert remedy in match[0].remedy
    assert len(found) == 1 or "operator" in field


def test_all_problems_are_reported_at_once() -> None:
    found = problems_of(ring(imbalancePercent=0, virtualNodes=0, leaseNamespace=None, nonsense=1))
    assert {p.field for p in found} == {
        "spec.imbalancePercent",
        "spec.virtualNodes",
        "spec.leaseNamespace",
        "spec.nonsense",
    }


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "x" * 64, "a..b"])
def test_a_ring_s_name_must_fit_into_label_keys(name: str) -> None:
    document = ring()
    document["metadata"]["name"] = name
    assert the_problem_of(document).field == "metadata.name"


@pytest.mark.parametrize(
    ("change", "field"), [({"kind": "Ring"}, "kind"), ({"apiVersion": "ringleader.dev/v9"}, "apiVersion")]
)
def test_another_kind_of_document_is_refused(change: dict[str, Any], field: str) -> None:
    assert the_problem_of(ring() | change).field == field


@pytest.mark.parametrize("spec", [None, [], "x", 7])
def test_a_document_without_a_usable_spec_is_refused_not_crashed_on(spec: object) -> None:
    assert problems_of({"metadata": {"name": "r"}, "spec": spec})


def test_what_the_api_server_adds_to_a_ring_does_not_matter() -> None:
    document = ring()
    document["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [], "finalizers": ["x"]}
    document["status"] = {"conditions": []}
    assert parse_ring(document) == parse_ring(ring())


def test_one_child_kind_may_belong_to_two_parents() -> None:
    child = [{"resource": "configmaps"}]
    spec = parse_ring(
        ring(
            resources=[
                {"group": "a.io", "resource": "as", "controlledResources": child},
                {"group": "b.io", "resource": "bs", "controlledResources": child},
            ]
        )
    )
    assert [entry.controlled for entry in spec.resources] == [(GroupResource("", "configmaps"),)] * 2


def test_domain_and_lease_namespace_are_immutable() -> None:
    old = make_spec()
    assert immutable_changes(worked_as(old), make_spec(eps=0.5, paused=True)) == []
    changed = immutable_changes(worked_as(old), make_spec(label_domain="x.io", lease_namespace="other"))
    assert [problem.field for problem in changed] == ["spec.labelDomain", "spec.leaseNamespace"]


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        (LabelSelector(), {}, True),
        (LabelSelector({"a": "1"}), {"a": "1", "b": "2"}, True),
        (LabelSelector({"a": "1"}), {"a": "2"}, False),
        (LabelSelector({}, (Requirement("a", "In", ("1", "2")),)), {"a": "2"}, True),
        (LabelSelector({}, (Requirement("a", "In", ("1",)),)), {}, False),
        (LabelSelector({}, (Requirement("a", "NotIn", ("1",)),)), {}, True),
        (LabelSelector({}, (Requirement("a", "NotIn", ("1",)),)), {"a": "1"}, False),
        (LabelSelector({}, (Requirement("a", "Exists"),)), {"a": ""}, True),
        (LabelSelector({}, (Requirement("a", "DoesNotExist"),)), {"a": ""}, False),
    ],
)
def test_namespace_selectors_mean_what_they_mean_in_the_api(
    selector: LabelSelector, labels: dict[str, str], matches: bool
) -> None:
    assert make_spec(namespace_selector=selector).selects_namespace(labels) is matches


def test_a_kind_may_be_distributed_and_controlled_if_its_trees_follow_their_roots() -> None:
    resources = [
        {"group": "apps", "resource": "deployments", "controlledResources": [{"resource": "pods"}]},
        {"resource": "pods"},
    ]
    assert parse_ring(ring(resources=resources, key="Owner")).key is KeyKind.OWNER
