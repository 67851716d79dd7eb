"""Checks of objects, each on a live plane that is broken in that way: the first finding names cause and object."""

from __future__ import annotations

from devcluster.embedded import EmbeddedPlane, Fault
from ringleader.check.findings import Level
from tests.ringleader.check.environment import (
    CONFIGMAPS,
    KEYS,
    ONE,
    SITES,
    TWO,
    WEBSITES,
    CheckEnvironment,
    found,
    is_well,
    only,
)
from tests.sharder.io.environment import backdate


async def test_an_object_without_owner_is_named_with_the_sharder_that_does_not_lead(
    env: CheckEnvironment,
) -> None:
    await env.age("ringleader-sharder", seconds=41, namespace="sites")
    await env.make_site(100, owner="")
    report = await env.diagnose()
    site, page = found(report, "owners")
    assert report.findings[0] is site
    assert site.object == "website/site-100 -n sites"
    assert site.summary.startswith(
        "website/site-100 -n sites has no owner: no sharder leads: sharder-a does not renew Lease "
        "sites/ringleader-sharder (for 4"
    )
    assert site.reason == "NoSharder"
    assert site.evidence == [f"ring websites: 1 of {SITES + 1} websites.example.com have no owner"]
    assert page.object == "configmap/site-100 -n sites"
    (sharder,) = found(report, "sharder")
    assert sharder.evidence == ["new objects and those of dead replicas wait"]


async def test_a_sharder_that_leads_and_does_not_assign_is_told_as_that(env: CheckEnvironment) -> None:
    await env.make_site(100, owner="")
    first = (await env.diagnose()).findings[0]
    assert first.summary.startswith("website/site-100 -n sites has no owner although ")
    assert "could have it: the sharder has not written the label" in first.summary
    assert first.remedy.endswith("; the sharder sharder-a leads")


async def test_the_shard_of_another_ring_is_told_as_that(env: CheckEnvironment) -> None:
    await env.make_ring("others", resources=[{"group": "", "resource": "secrets"}])
    await env.join("theirs-00000007", ring="others")
    await env.label("site-003", {KEYS.shard: "theirs-00000007"})
    first = only(await env.diagnose(), "names")
    assert "its label names theirs-00000007, a Lease of ring others; the sharder gives it to" in first.summary


async def test_a_handoff_that_the_sharder_calls_late_is_told_with_object_and_owner(
    env: CheckEnvironment,
) -> None:
    await env.label("site-000", {KEYS.drain: TWO})
    await env.label("site-001", {KEYS.drain: ONE})
    await backdate(env.client, WEBSITES, "site-000", namespace="sites")
    await env.tell_status(
        Ready=("True", "Working", ""),
        DrainStuck=("True", "DrainTimeout", f"handoffs past drainTimeoutSeconds: {ONE} (1)"),
    )
    first = only(await env.diagnose(), "handoffs")
    assert first.object == "website/site-000 -n sites"
    assert (
        f"is stuck: its owner {ONE} does not hand it over to {TWO} (drainTimeoutSeconds 60)" in first.summary
    )
    assert (
        f"ring websites: 1 of {SITES} websites.example.com of {ONE} wait for their handoff" in first.evidence
    )


async def test_a_handoff_under_way_is_no_trouble(env: CheckEnvironment) -> None:
    await env.label("site-000", {KEYS.drain: TWO})
    assert is_well(await env.diagnose())


async def test_a_controller_that_heeds_no_label_is_seen_in_managed_fields(env: CheckEnvironment) -> None:
    for index in range(4):
        await env.apply_status(f"site-{index:03d}", manager="websites-operator", configMap="x")
    first = only(await env.diagnose(), "writers")
    assert first.level is Level.WARNING
    assert "and websites-operator wrote it too: a controller that ignores the shard label" in first.summary
    assert first.object.startswith("website/site-00")
    assert "wrote the status of 4 websites.example.com of 2 shards, last at 20" in first.evidence[0]
    assert is_well(await env.diagnose(managers=["websites-operator"]))


async def test_replicas_may_write_under_the_name_that_their_leases_say(env: CheckEnvironment) -> None:
    """It is their controller's, which need not be the ring's or the resource's."""
    await env.join("three-00000001", writes_as="publisher")
    for index in range(4):
        await env.apply_status(f"site-{index:03d}", manager="publisher", configMap="x")
    assert is_well(await env.diagnose())


async def test_people_and_who_writes_to_one_shard_only_are_no_such_controller(env: CheckEnvironment) -> None:
    for index in range(4):
        await env.apply_status(f"site-{index:03d}", manager="kubectl-edit", configMap="x")
    for index in range(0, 4, 2):
        await env.apply_status(f"site-{index:03d}", manager="only-of-one", configMap="x")
    assert is_well(await env.diagnose())


async def test_a_right_that_the_check_lacks_is_no_finding_about_objects(env: CheckEnvironment) -> None:
    """What is left of a ring whose resource is not served: told as not checked, and the rest is judged."""
    await env.edit_ring(
        resources=[{"group": "example.com", "resource": "websitez"}, {"resource": "configmaps"}]
    )
    await env.tell_status(Ready=("True", "Working", ""))
    report = await env.diagnose()
    assert report.level is Level.UNCHECKED
    unchecked = [each for each in report.findings if each.level is Level.UNCHECKED]
    assert {each.check for each in unchecked} >= {"owners", "names", "handoffs", "sizes"}
    assert "websitez.example.com" in unchecked[0].summary


async def test_without_the_leases_no_object_is_called_ownerless(env: CheckEnvironment) -> None:
    assert isinstance(env.plane, EmbeddedPlane)
    refused = Fault(what="error", verb="list", resource="leases.coordination.k8s.io", code=403)
    await env.plane.faults.add(refused)
    report = await env.diagnose()
    assert report.level is Level.UNCHECKED
    by_check = {each.check: each.level for each in report.findings}
    assert [by_check[name] for name in ("owners", "names", "silent", "sharder")] == [Level.UNCHECKED] * 4
    assert by_check["crd"] is Level.OK


async def test_children_are_looked_at_too(env: CheckEnvironment) -> None:
    await env.label("site-004", {KEYS.shard: "ghost-00000009"}, resource=CONFIGMAPS)
    assert only(await env.diagnose(), "names").object == "configmap/site-004 -n sites"
