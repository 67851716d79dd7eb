"""Checks of what is installed, of sizes and of the server, on a live embedded plane."""

from __future__ import annotations

import yaml

from kubeio.resource import CRDS
from ringleader.assets import ring_crd
from ringleader.check import sizes
from ringleader.check.findings import Level
from ringleader.check.installation import flow_schema_of, is_for_leases
from ringleader.cluster import thresholds
from tests.ringleader.check.environment import ONE, SITES, TWO, CheckEnvironment, found, is_well, only

CRD = "controllerrings.ringleader.dev"


async def test_an_old_definition_is_told_with_the_fields_that_it_lacks(env: CheckEnvironment) -> None:
    there = await env.client.get(CRDS, CRD, type=dict)
    spec = there["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["drainPolicy"], spec["resources"]["items"]["properties"]["controlledResources"]
    await env.client.replace(CRDS, CRD, there, type=bytes)
    report = await env.diagnose()
    (first,) = found(report, "crd")
    assert first.level is Level.ERROR
    assert first.summary.startswith(f"crd/{CRD} is older than this version: it lacks spec.drainPolicy, ")
    assert any("spec.resources[].controlledResources" in line for line in first.evidence)
    assert "ringleader crds | kubectl apply --server-side -f -" in first.remedy


async def test_a_missing_definition_is_told_and_nothing_else_crashes(env: CheckEnvironment) -> None:
    await env.client.delete(CRDS, CRD)
    report = await env.diagnose()
    assert only(report, "crd").summary.startswith(f"crd/{CRD} is not installed")


async def test_a_definition_with_more_than_this_version_knows_is_fine(env: CheckEnvironment) -> None:
    newer = yaml.safe_load(ring_crd().read_text())
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["more"] = {
        "type": "string"
    }
    there = await env.client.get(CRDS, CRD, type=dict)
    newer["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    await env.client.replace(CRDS, CRD, newer, type=bytes)
    assert is_well(await env.diagnose())


async def test_a_ring_to_be_assigned_at_admission_without_a_configuration_is_told(
    env: CheckEnvironment,
) -> None:
    await env.edit_ring(assignAtAdmission=True)
    await env.tell_status(Ready=("True", "Working", ""))
    first = only(await env.diagnose(), "webhook")
    assert first.level is Level.WARNING
    assert first.summary.startswith("mutatingwebhookconfiguration/ringleader-websites does not exist")


async def test_accounts_that_nobody_named_are_not_checked(env: CheckEnvironment) -> None:
    report = await env.diagnose(accounts={})
    assert report.level is Level.UNCHECKED
    unchecked = [each for each in report.findings if each.level is Level.UNCHECKED]
    assert {each.check for each in unchecked} == {"rights", "flowschema"}
    assert unchecked[0].remedy == "name it: --shard-account NAMESPACE/NAME"


async def test_sizes_that_will_hurt_are_told_with_the_shard(env: CheckEnvironment, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """With limits that fit a small plane."""
    monkeypatch.setattr(sizes, "OBJECTS_PER_SHARD", 4)
    report = await env.diagnose()
    told = found(report, "sizes")
    assert [each.level for each in told] == [Level.WARNING, Level.WARNING]
    assert told[0].summary.startswith(f"shard {TWO} of ring websites has 6 websites.example.com, about 0 MiB")
    assert told[0].remedy.startswith("run 3 replicas")
    assert ONE not in told[0].summary


async def test_a_death_that_overruns_the_event_history_is_told(env: CheckEnvironment, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sizes, "HISTORY", 10)
    report = await env.diagnose()
    told = found(report, "sizes")
    assert {each.object for each in told} == {"controllerring/websites"}
    assert f"relabels about {SITES // 2} websites.example.com" in told[0].summary


def test_the_flow_schema_of_a_lease_renewal_is_the_first_by_precedence() -> None:
    """As the server chooses: subject and resource rule must both match."""
    everything = schema("global", 9000, subject={"kind": "Group", "group": {"name": "system:authenticated"}})
    leases_of_one = schema(
        "leases",
        100,
        subject={"kind": "ServiceAccount", "serviceAccount": {"namespace": "sites", "name": "websites"}},
        resources=["leases"],
        level="leader-election",
    )
    both = [everything, leases_of_one]
    assert flow_schema_of("system:serviceaccount:sites:websites", both) is leases_of_one
    assert flow_schema_of("system:serviceaccount:sites:other", both) is everything
    assert flow_schema_of("ada", both) is everything
    reads_only = schema("reads", 50, subject={"kind": "User", "user": {"name": "*"}}, verbs=["get"])
    assert flow_schema_of("ada", [reads_only, everything]) is everything


def test_a_flow_schema_whose_priority_level_is_gone_is_passed_over() -> None:
    everybody = {"kind": "Group", "group": {"name": "system:authenticated"}}
    chosen = schema("global", 9000, subject=everybody)
    gone = schema("leases", 100, subject=everybody, resources=["leases"], level="ours")
    assert flow_schema_of("ada", [chosen, gone]) is gone
    gone["status"] = {"conditions": [{"type": "Dangling", "status": "True"}]}
    assert flow_schema_of("ada", [chosen, gone]) is chosen


def test_a_level_is_for_leases_if_nothing_else_goes_there() -> None:
    everybody = {"kind": "User", "user": {"name": "*"}}
    ours = schema("leases", 100, subject=everybody, resources=["leases"], level="ours")
    patches = schema("patches", 200, subject=everybody, resources=["websites"], level="ours")
    assert is_for_leases("ours", [ours])
    assert not is_for_leases("ours", [ours, patches])
    assert not is_for_leases("ours", [])
    assert is_for_leases("leader-election", [])
    assert not is_for_leases("workload-low", [schema("low", 9000, subject=everybody, level="workload-low")])


def schema(name: str, precedence: int, *, subject: object, **rule: object) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": rule.get("level", "global-default")},
            "rules": [
                {
                    "subjects": [subject],
                    "resourceRules": [
                        {
                            "verbs": rule.get("verbs", ["*"]),
                            "apiGroups": ["*"],
                            "resources": rule.get("resources", ["*"]),
                            "namespaces": ["*"],
                        }
                    ],
                }
            ],
        },
    }


def test_limits_stand_where_the_documents_say() -> None:
    assert (sizes.OBJECTS_PER_SHARD, sizes.HISTORY, thresholds.SKEW_S) == (50_000, 102_400, 2.0)
