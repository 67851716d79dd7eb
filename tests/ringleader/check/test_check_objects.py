"""Checks of objects, each on a live plane that is broken in that way: the first finding names cause and object."""

from __future__ import annotations

import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.resource import LEASES
from ringleader.check.findings import Level
from tests.ringleader.check.ward import CONFIGMAPS, KEYS, ONE, RING, SITES, TWO, Ward, found, is_well, only


async def test_an_object_without_owner_is_named_with_the_sharder_that_does_not_lead(ward: Ward) -> None:
    await ward.age("ringleader-sharder", seconds=41, namespace="sites")
    await ward.make_site(100, owner="")
    report = await ward.diagnose()
    site, page = found(report, "owners")
    assert report.findings[0] is site
    assert site.object == "website/site-100 -n sites"
    assert site.summary.startswith(
        "website/site-100 -n sites has no owner: no sharder leads: sharder-a does not renew Lease "
        "sites/ringleader-sharder (for 4"
    )
    assert site.reason == "NoSharder"
    assert site.evidence == [f"1 of {SITES + 1} websites.example.com have no owner"]
    assert page.object == "configmap/site-100 -n sites"
    (sharder,) = found(report, "sharder")
    assert sharder.evidence == ["new objects and those of dead replicas wait"]


async def test_without_any_election_lease_no_sharder_ever_led(ward: Ward) -> None:
    await ward.fall_silent("ringleader-sharder")
    await ward.client.delete(LEASES, "ringleader-sharder", namespace="sites")
    report = await ward.diagnose()
    assert only(report, "sharder").summary == (
        "ring websites waits: no sharder leads: there is no Lease ringleader-sharder in any namespace"
    )


async def test_a_lease_that_the_sharder_gave_back_is_held_by_nobody(ward: Ward) -> None:
    await ward.fall_silent("ringleader-sharder")
    await ward.edit_lease("ringleader-sharder", namespace="sites", holder_identity="")
    assert (
        "no sharder leads: Lease sites/ringleader-sharder is free"
        in only(await ward.diagnose(), "sharder").summary
    )


async def test_a_ring_that_is_not_ready_is_the_cause(ward: Ward) -> None:
    await ward.tell_status(Ready=("False", "Forbidden", "patch websites.example.com: may not"))
    await ward.make_site(100, owner="")
    report = await ward.diagnose()
    assert report.findings[0].summary.startswith(
        "website/site-100 -n sites has no owner: ring websites is not ready: patch websites.example.com: may not"
    )
    (ring,) = found(report, "rings")
    assert ring.object == "controllerring/websites"


async def test_no_replica_is_the_cause(ward: Ward) -> None:
    for shard in (ONE, TWO):
        await ward.fall_silent(shard)
        await ward.edit_lease(shard, holder_identity="sharder:sharder-a", lease_transitions=1)
    report = await ward.diagnose()
    first = report.findings[0]
    assert (
        "is dead, and no replica of ring websites lives (no held Lease in namespace rings) (for "
        in first.summary
    )
    assert first.evidence == [f"6 of {SITES} websites.example.com name {ONE}"]


async def test_too_few_members_are_the_cause(ward: Ward) -> None:
    await ward.edit_ring(minMembers=3)
    await ward.tell_status(Ready=("True", "Working", ""))
    await ward.make_site(100, owner="")
    report = await ward.diagnose()
    assert "ring websites waits for 3 members (spec.minMembers), 2 live" in report.findings[0].summary


async def test_a_sharder_that_leads_and_does_not_assign_is_told_as_that(ward: Ward) -> None:
    await ward.make_site(100, owner="")
    first = (await ward.diagnose()).findings[0]
    assert first.summary.startswith("website/site-100 -n sites has no owner although ")
    assert "could have it: the sharder has not written the label" in first.summary
    assert first.remedy.endswith("; the sharder sharder-a leads")


async def test_an_owner_that_was_forced_is_contested_and_not_dead(ward: Ward) -> None:
    await ward.fall_silent(ONE)
    leases = await ward.client.get(LEASES, ONE, namespace="rings", type=Lease)
    leases.metadata.annotations[KEYS.contested] = "2026-11-21T12:00:00.000000Z"
    leases.spec.holder_identity, leases.spec.lease_transitions = "sharder:sharder-a", 1
    await ward.client.replace(LEASES, ONE, leases, namespace="rings", type=bytes)
    first = (await ward.diagnose()).findings[0]
    assert first.level is Level.WARNING
    assert f"the Lease of its owner {ONE} was taken, and it may still work" in first.summary


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (
            "ghost-00000009",
            "but Lease rings/ghost-00000009 does not exist: it was deleted, or the label was written by hand",
        ),
        ("Not_A_Lease", "which no shard can be called"),
    ],
)
async def test_a_name_that_nobody_has_is_told_with_the_object(ward: Ward, name: str, what: str) -> None:
    await ward.label("site-003", {KEYS.shard: name})
    first = only(await ward.diagnose(), "names")
    assert first.level is Level.ERROR
    assert first.object == "website/site-003 -n sites"
    assert "website/site-003 -n sites is worked on by nobody: its label names " in first.summary
    assert f"{what}; the sharder gives it to " in first.summary


async def test_the_shard_of_another_ring_is_told_as_that(ward: Ward) -> None:
    await ward.make_ring("others", resources=[{"group": "", "resource": "secrets"}])
    await ward.join("theirs-00000007", ring="others")
    await ward.label("site-003", {KEYS.shard: "theirs-00000007"})
    first = only(await ward.diagnose(), "names")
    assert "its label names theirs-00000007, a Lease of ring others; the sharder gives it to" in first.summary


async def test_a_tombstone_tells_that_a_lease_was_deleted_or_a_label_forged(ward: Ward) -> None:
    keys = {KEYS.member: "ghost", KEYS.contested: "2026-11-21T12:00:00.000000Z"}
    lease = Lease(
        Meta(name="ghost-00000009", labels={KEYS.ring_label: RING}, annotations=keys),
        LeaseSpec("sharder:sharder-a", 2, None, None, 0),
    )
    await ward.client.create(LEASES, lease, namespace="rings", type=bytes)
    await ward.label("site-003", {KEYS.shard: "ghost-00000009"})
    first = only(await ward.diagnose(), "names")
    assert first.summary == (
        "website/site-003 -n sites waits 60 s before it is given away: its label names ghost-00000009, but Lease "
        "rings/ghost-00000009 does not exist: it was deleted, or the label was written by hand"
    )
    assert "wait for maxLeaseDurationSeconds" in first.remedy


async def test_a_handoff_that_the_sharder_calls_late_is_told_with_object_and_owner(ward: Ward) -> None:
    await ward.label("site-000", {KEYS.drain: TWO})
    await ward.label("site-001", {KEYS.drain: ONE})
    await ward.tell_status(
        Ready=("True", "Working", ""),
        DrainStuck=("True", "DrainTimeout", f"handoffs past drainTimeoutSeconds: {ONE} (1)"),
    )
    first = only(await ward.diagnose(), "handoffs")
    assert first.object == "website/site-000 -n sites"
    assert (
        f"is stuck: its owner {ONE} does not hand it over to {TWO} (drainTimeoutSeconds 60)" in first.summary
    )
    assert f"1 of {SITES} websites.example.com of {ONE} wait for their handoff" in first.evidence


async def test_a_handoff_under_way_is_no_trouble(ward: Ward) -> None:
    await ward.label("site-000", {KEYS.drain: TWO})
    assert is_well(await ward.diagnose())


async def test_a_controller_that_heeds_no_label_is_seen_in_managed_fields(ward: Ward) -> None:
    for index in range(4):
        await ward.apply_status(f"site-{index:03d}", manager="websites-operator", configMap="x")
    first = only(await ward.diagnose(), "writers")
    assert first.level is Level.WARNING
    assert "and websites-operator wrote it too: a controller that ignores the shard label" in first.summary
    assert first.object.startswith("website/site-00")
    assert "wrote the status of 4 websites.example.com of 2 shards, last at 20" in first.evidence[0]
    assert is_well(await ward.diagnose(managers=["websites-operator"]))


async def test_replicas_may_write_under_the_name_that_their_leases_say(ward: Ward) -> None:
    """It is their controller's, which need not be the ring's or the resource's."""
    await ward.join("three-00000001", writes_as="publisher")
    for index in range(4):
        await ward.apply_status(f"site-{index:03d}", manager="publisher", configMap="x")
    assert is_well(await ward.diagnose())


async def test_people_and_who_writes_to_one_shard_only_are_no_such_controller(ward: Ward) -> None:
    for index in range(4):
        await ward.apply_status(f"site-{index:03d}", manager="kubectl-edit", configMap="x")
    for index in range(0, 4, 2):
        await ward.apply_status(f"site-{index:03d}", manager="only-of-one", configMap="x")
    assert is_well(await ward.diagnose())


async def test_a_right_that_the_doctor_lacks_is_no_finding_about_objects(ward: Ward) -> None:
    """What is left of a ring whose resource is not served: told as not checked, and the rest is judged."""
    await ward.edit_ring(
        resources=[{"group": "example.com", "resource": "websitez"}, {"resource": "configmaps"}]
    )
    await ward.tell_status(Ready=("True", "Working", ""))
    report = await ward.diagnose()
    assert report.level is Level.UNCHECKED
    unchecked = [each for each in report.findings if each.level is Level.UNCHECKED]
    assert {each.check for each in unchecked} >= {"owners", "names", "handoffs", "sizes"}
    assert "websitez.example.com" in unchecked[0].summary


async def test_without_the_leases_no_object_is_called_ownerless(ward: Ward) -> None:
    assert isinstance(ward.plane, EmbeddedPlane)
    refused = Fault(what="error", verb="list", resource="leases.coordination.k8s.io", code=403)
    await ward.plane.faults.add(refused)
    report = await ward.diagnose()
    assert report.level is Level.UNCHECKED
    by_check = {each.check: each.level for each in report.findings}
    assert [by_check[name] for name in ("owners", "names", "silent", "sharder")] == [Level.UNCHECKED] * 4
    assert by_check["crd"] is Level.OK


async def test_a_thousand_forged_names_are_told_as_ten(ward: Ward) -> None:
    for index in range(12):
        await ward.label(f"site-{index:03d}", {KEYS.shard: f"ghost-{index:08x}"})
    told = found(await ward.diagnose(), "names")
    assert len(told) == 10
    assert told[-1].evidence[-1] == "and 2 more findings of this check"


async def test_children_are_looked_at_too(ward: Ward) -> None:
    await ward.label("site-004", {KEYS.shard: "ghost-00000009"}, resource=CONFIGMAPS)
    assert only(await ward.diagnose(), "names").object == "configmap/site-004 -n sites"
