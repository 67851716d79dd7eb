"""Checks of rings whose shards are proxies of unmodified controllers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubeio.fence import policies_of
from kubeio.models import Lease
from kubeio.protocol import PROXY_MANAGER
from kubeio.resource import ApiResource
from ringleader.check.checks import CHECKS
from ringleader.check.evidence import Evidence, ForeignWriter, ResourceCount, RingEvidence
from ringleader.check.findings import Finding, Level
from ringleader.cluster.ring import Ring, ring_of
from ringleader.cluster.shards import shards_of
from ringleader.cluster.snapshot import Gap, RingState, Snapshot
from tests.ringleader.cluster.snapshots import KEYS, NOW, leads, lease

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
PAGES = ApiResource("example.com", "v1", "pages", "Page")
PODS = ApiResource("", "v1", "pods", "Pod")
ONE, TWO = "one-00000001", "two-00000002"
TREE = [
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "example.com", "resource": "pages"}],
    },
    {"group": "example.com", "resource": "pages", "controlledResources": [{"resource": "pods"}]},
]
BATCHES = {"maxInFlight": 10_000, "maxInFlightPerOwner": 10_000}


def proxy(name: str) -> Lease:
    return lease(name, marks={KEYS.field_manager: PROXY_MANAGER})


def ring(name: str = "websites", /, **spec: Any) -> Ring:
    wanted = {"resources": TREE, "leaseNamespace": "rings", "key": "Owner", **BATCHES, **spec}
    return ring_of({"metadata": {"name": name}, "spec": wanted})


def evidence(of: Ring, *leases: Lease, roots: int = 100, others: tuple[Ring, ...] = ()) -> Evidence:
    """A ring of two proxies unless *leases* are given, *roots* of the first shard's, fenced, on a new server."""
    found = leases or (proxy(ONE), proxy(TWO))
    states = [RingState(of, shards_of(of, found, now=NOW), began_at=NOW, read_at=NOW)]
    states += [RingState(other, (), began_at=NOW, read_at=NOW) for other in others]
    numbers = {WEBSITES: roots, PAGES: 50_000, PODS: 50_000}
    counts = [
        ResourceCount(kind, is_main=kind.group_resource in of.mains, owners=Counter({ONE: number}))
        for kind, number in numbers.items()
        if kind.group_resource in map(str, of.kinds)
    ]
    rules = [
        {"apiGroups": ["example.com"], "resources": ["websites", "pages"]},
        {"apiGroups": [""], "resources": ["pods"]},
    ]
    policies = {
        name: {"spec": {"matchConstraints": {"resourceRules": rules}}} for name in policies_of(of.name)
    }
    rings = [RingEvidence(states[0], counts=counts), *(RingEvidence(state) for state in states[1:])]
    return Evidence(
        Snapshot(NOW, states, leads()),
        rings,
        server="https://cluster",
        version="v1.36.3",
        policies=policies,
        policy_bindings={name: {"spec": {"validationActions": ["Deny"]}} for name in policies},
    )


def judged(seen: Evidence, check: str = "proxies") -> list[Finding]:
    """What *check* finds wrong."""
    (only,) = (each for each in CHECKS if each.name == check)
    return [each for each in only.run(seen) if each.level in (Level.ERROR, Level.WARNING)]


def test_a_ring_of_proxies_that_is_well_has_no_finding() -> None:
    assert judged(evidence(ring())) == []


@pytest.mark.parametrize("manager", ["", "websites"])
def test_nothing_is_said_of_a_ring_without_proxies(manager: str) -> None:
    native = lease(ONE, marks={KEYS.field_manager: manager})
    seen = evidence(ring(key="Object", maxInFlight=1, maxInFlightPerOwner=1), native)
    seen.policies, seen.version = {}, "v1.29.0"
    assert judged(seen) == []
    (check,) = (each for each in CHECKS if each.name == "proxies")
    (fine,) = check.run(seen)
    assert (fine.level, fine.summary) == (Level.OK, "no ring's shards are proxies")


@pytest.mark.parametrize("field", ["maxInFlight", "maxInFlightPerOwner"])
def test_batches_smaller_than_a_shard_s_roots_are_found_with_the_restarts_that_they_cost(field: str) -> None:
    (finding,) = judged(evidence(ring(**{field: 250}), roots=501))
    assert (finding.level, finding.object) == (Level.WARNING, "controllerring/websites")
    assert f"{field} 250: shard {ONE} has 501 roots" in finding.summary
    assert "restarts 3 times" in finding.summary
    assert f"spec.{field}" in finding.remedy
    assert judged(evidence(ring(**{field: 501}), roots=501)) == []


@pytest.mark.parametrize("key", ["Object", "Namespace"])
def test_a_key_that_tears_trees_apart_is_an_error(key: str) -> None:
    (finding,) = judged(evidence(ring(key=key)))
    assert finding.level is Level.ERROR
    assert "what pages.example.com control" in finding.summary
    assert finding.remedy == "set spec.key: Owner"


def test_a_flat_tree_may_have_any_key() -> None:
    flat = [TREE[0] | {"controlledResources": [{"resource": "pods"}]}]
    assert judged(evidence(ring(key="Object", resources=flat))) == []


def test_a_native_replica_among_proxies_is_found() -> None:
    (finding,) = judged(evidence(ring(), proxy(ONE), lease(TWO)))
    assert f"shard {TWO} (member two) of ring websites is no proxy" in finding.summary


def test_a_kind_of_the_tree_that_another_ring_distributes_is_found() -> None:
    other = ring("pages", resources=[TREE[1]])
    unrelated = ring("secrets", resources=[{"resource": "secrets"}])
    elsewhere = ring("again", resources=[TREE[0]], labelDomain="example.org")
    findings = judged(evidence(ring(), others=(other, unrelated, elsewhere)))
    assert [each.summary.split(": ")[0] for each in findings] == [
        "ring websites, of proxies, moves websites.example.com with its trees, and ring again distributes them by "
        "themselves"
    ]
    inner = ring(resources=[TREE[0] | {"controlledResources": [{"resource": "pods"}]}], key="Object")
    (finding,) = judged(evidence(inner, others=(ring("pods", resources=[{"resource": "pods"}]),)))
    assert "moves pods with its trees, and ring pods" in finding.summary


def test_a_missing_policy_of_the_fence_is_found_with_the_command_that_makes_it() -> None:
    seen = evidence(ring())
    first, second = policies_of("websites")
    assert seen.policies is not None
    del seen.policies[first]
    seen.policy_bindings[second] = {"spec": {"validationActions": ["Audit"]}}
    findings = judged(seen)
    assert [each.level for each in findings] == [Level.WARNING] * 2
    assert f"there is no validatingadmissionpolicy/{first}" in findings[0].summary
    assert f"validatingadmissionpolicybinding/{second} refuses nothing" in findings[1].summary
    assert {each.remedy for each in findings} == {
        "ringleader fence websites | kubectl apply --server-side -f -"
    }


def test_a_policy_that_does_not_know_a_kind_is_found() -> None:
    seen = evidence(ring())
    seen.rings[0].counts.append(ResourceCount(ApiResource("", "v1", "secrets", "Secret"), is_main=False))
    assert [f"does not know {'secrets'}" in each.summary for each in judged(seen)] == [True, True]


def test_an_old_server_cannot_fence() -> None:
    seen = evidence(ring())
    seen.version, seen.policies = "v1.29.4", {}
    (finding,) = judged(seen)
    assert "is v1.29.4: it cannot fence ring websites" in finding.summary
    assert "1.30" in finding.remedy


def test_policies_that_could_not_be_read_are_not_missing() -> None:
    seen = evidence(ring())
    seen.policies = None
    assert judged(seen) == []
    seen = evidence(ring())
    seen.policies, seen.gaps = {}, {"guard": Gap("may not list", "a rule")}
    assert judged(seen) == []


def test_an_unmodified_controller_is_no_foreign_writer() -> None:
    """It writes under one name for all shards, which no Lease says."""
    for leases, expected in ((), 0), ((lease(ONE), lease(TWO)), 1):
        seen = evidence(ring(), *leases)
        writer = ForeignWriter(9, {ONE, TWO}, "website/a", ONE)
        seen.rings[0].counts[0].writers["manager"] = writer
        assert len(judged(seen, "writers")) == expected
