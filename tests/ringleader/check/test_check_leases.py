"""Checks of Leases and rings, each on a live plane that is broken in that way."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.patch import MergePatch
from ringleader.check.findings import Level
from ringleader.check.leases import skew
from tests.ringleader.check.ward import KEYS, ONE, RING, TWO, WEBSITES, Ward, found, is_well, only


async def test_two_lives_of_one_member_are_told_with_both_names(ward: Ward) -> None:
    await ward.join("one-0000000f", member="one")
    first = only(await ward.diagnose(), "members")
    assert first.level is Level.ERROR
    assert first.summary == "member one of ring websites runs 2 times at once: one-00000001 and one-0000000f"
    assert "--member one" in first.remedy


async def test_a_life_that_has_ended_is_no_second_one(ward: Ward) -> None:
    """Released, taken, or silent: its Lease stands for a minute."""
    await ward.join("one-0000000d", member="one", renewed=False)
    await ward.edit_lease("one-0000000d", holder_identity="sharder:sharder-a")
    await ward.join("one-0000000e", member="one", renewed=False)
    await ward.edit_lease("one-0000000e", holder_identity="")
    assert is_well(await ward.diagnose())


async def test_a_replica_that_renews_no_more_is_told_with_its_objects(ward: Ward) -> None:
    await ward.age(ONE, seconds=9)
    first = only(await ward.diagnose(), "silent")
    assert first.level is Level.ERROR
    assert first.object == f"lease/{ONE} -n rings"
    assert first.summary.startswith(f"shard {ONE} does not renew its Lease: frozen, cut off, or dead (for 1")
    assert first.evidence[0] == "website/site-000 -n sites and the rest of its 12 objects wait"


async def test_a_replica_that_renews_and_does_not_observe_its_objects_is_told(ward: Ward) -> None:
    for index in range(0, 12, 2):
        await spoil(ward, index)
    await spoil(ward, 1)
    first = only(await ward.diagnose(), "silent")
    assert first.object == "website/site-000 -n sites"
    assert first.summary == f"website/site-000 -n sites has a change that its owner {ONE} has not observed"
    assert first.evidence[0].startswith("of 6 of its websites.example.com, 6 have a status behind their spec")


async def test_what_a_ring_said_at_the_first_look_only_is_no_trouble(ward: Ward) -> None:
    """A sharder writes the status now and then."""
    await ward.tell_status(Ready=("False", "Waiting", "for members"))
    looking = asyncio.create_task(ward.diagnose(), name="check")
    await asyncio.sleep(0.6)
    await ward.tell_status(Ready=("True", "Working", ""))
    assert is_well(await looking)
    await ward.tell_status(Ready=("False", "Forbidden", "may not patch websites"))
    assert "may not patch websites" in only(await ward.diagnose(), "rings").summary


async def test_a_former_controller_that_leads_beside_the_ring_is_an_error(ward: Ward) -> None:
    await ward.tell_status(Ready=("False", "FormerController", "old-1 holds the former controller's Lease"))
    found_one = only(await ward.diagnose(), "rings")
    assert found_one.level is Level.ERROR
    assert "old-1 holds the former controller's Lease" in found_one.summary
    assert found_one.remedy.startswith("scale the former controller to zero")


async def test_a_ring_that_is_being_given_up_is_no_trouble(ward: Ward) -> None:
    await ward.tell_status(Ready=("False", "Releasing", "the ring is being given up: 7 objects given up"))
    assert is_well(await ward.diagnose())


async def spoil(ward: Ward, index: int) -> None:
    """An edit that nobody observes; it looks as if it were older than the doctor's patience."""
    patch = MergePatch({"spec": {"html": "newer"}})
    await ward.client.patch(WEBSITES, f"site-{index:03d}", patch, namespace="sites", type=bytes)


async def test_a_replica_that_gets_on_is_not_idle(ward: Ward) -> None:
    """A backlog: most is behind, and some of it is done between both looks."""
    for index in range(0, 12, 2):
        await spoil(ward, index)

    async def work() -> None:
        await asyncio.sleep(0.6)
        await ward.observe("site-010", 2)

    working = asyncio.create_task(work())
    report = await ward.diagnose()
    await working
    assert is_well(report)


async def test_what_a_replica_left_in_another_namespace_long_ago_is_no_trouble(ward: Ward) -> None:
    await ward.join("three-00000003", namespace="sites", skew_s=-4000, renewed=False)
    assert is_well(await ward.diagnose())


async def test_a_lease_in_the_wrong_namespace_is_told_with_the_right_one(ward: Ward) -> None:
    await ward.join("three-00000003", namespace="sites")
    first = only(await ward.diagnose(), "lease namespaces")
    assert first.level is Level.ERROR
    assert first.summary == (
        "lease/three-00000003 -n sites (member three) does not count for ring websites: its Leases belong into "
        "namespace rings"
    )


@pytest.mark.parametrize(("skew_s", "words"), [(300.0, "30. s ahead"), (-300.0, "(30.|29.) s behind")])
async def test_a_clock_that_is_off_is_told_with_way_and_seconds(
    ward: Ward, skew_s: float, words: str
) -> None:
    import re

    await ward.join("three-00000003", skew_s=skew_s)
    first = only(await ward.diagnose(), "clocks")
    assert first.level is Level.WARNING
    assert re.search(rf"the clock of shard three-00000003 \(member three\) is {words}", first.summary)


async def test_a_silent_replica_has_no_slow_clock(ward: Ward) -> None:
    await ward.age(ONE, seconds=100)
    report = await ward.diagnose()
    assert found(report, "clocks") == []


async def test_two_rings_over_one_resource_are_told_with_an_object(ward: Ward) -> None:
    await ward.make_ring("more")
    await ward.join("theirs-00000007", ring="more")
    report = await ward.diagnose()
    (told,) = found(report, "overlaps")
    assert told.level is Level.WARNING
    assert told.summary.startswith(
        "rings more and websites both distribute websites.example.com under the label domain ringleader.dev: each "
        "object, such as website/site-0"
    )


async def test_rings_of_two_domains_or_of_separate_namespaces_do_not_overlap(ward: Ward) -> None:
    await ward.make_ring("elsewhere", labelDomain="other.example.com")
    await ward.edit_ring(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "sites"}})
    await ward.make_ring("apart", namespaceSelector={"matchLabels": {"team": "none"}})
    report = await ward.diagnose()
    assert found(report, "overlaps") == []


async def test_a_name_in_two_rings_is_told(ward: Ward) -> None:
    await ward.make_ring("others", leaseNamespace="sites", resources=[{"resource": "secrets"}])
    await ward.join("both-00000005", ring="others", namespace="sites", renewed=False)
    # its double, of this ring: not renewed, so that one name needs one task
    await ward.join("both-00000005", namespace="rings")
    (told,) = found(await ward.diagnose(), "members")
    assert "are one name in two rings, others and websites" in told.summary


async def test_only_the_ring_that_was_asked_for_is_looked_at(ward: Ward) -> None:
    await ward.make_ring("more", resources=[{"resource": "secrets"}])
    await ward.label("site-003", {KEYS.shard: "ghost-00000009"})
    report = await ward.diagnose(ring="more")
    assert report.rings == ["more"]
    assert is_well(report)
    assert (await ward.diagnose(ring=RING)).level is Level.ERROR


def test_the_skew_is_what_renewals_show() -> None:
    """Pure: ahead of the second look; behind the first one although renewed since; else unknown."""
    from datetime import UTC, datetime, timedelta

    from kubeio.clock import micro_time
    from kubeio.models import Lease, LeaseSpec, Meta
    from ringleader.cluster.ring import ring_of
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import RingState

    first_at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    second_at = first_at + timedelta(seconds=6)
    ring = ring_of({"metadata": {"name": RING}, "spec": {}})
    state = RingState(ring, began_at=first_at, read_at=second_at)

    def renewed(before_s: float, after_s: float) -> Shard:
        at = micro_time(first_at + timedelta(seconds=after_s))
        lease = Lease(Meta(name=TWO), LeaseSpec(TWO, 15, None, at, 0))
        return Shard(lease, KEYS, second_at, is_renewing=before_s != after_s)

    assert skew(state, renewed(-3, 2)) == 0
    assert skew(state, renewed(-3, -3)) == 0, "it was not renewed: nothing is known"
    assert skew(state, renewed(5, 10)) == 4
    assert skew(state, renewed(-65, -60)) == -60
