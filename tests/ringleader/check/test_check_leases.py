"""Checks of Leases and rings, each on a live plane that is broken in that way."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.patch import MergePatch
from ringleader.check.findings import Level
from tests.ringleader.check.ward import KEYS, ONE, RING, WEBSITES, Ward, found, is_well, only


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


async def test_a_lease_in_the_wrong_namespace_is_told_with_the_right_one(ward: Ward) -> None:
    await ward.join("three-00000003", namespace="sites")
    first = only(await ward.diagnose(), "lease namespaces")
    assert first.level is Level.ERROR
    assert first.summary == (
        "lease/three-00000003 -n sites (member three) does not count for ring websites: its Leases belong into "
        "namespace rings"
    )


@pytest.mark.parametrize(("skew_s", "words"), [(-300.0, "(30.|29.) s behind")])
async def test_a_clock_that_is_off_is_told_with_way_and_seconds(
    ward: Ward, skew_s: float, words: str
) -> None:
    import re

    await ward.join("three-00000003", skew_s=skew_s)
    first = only(await ward.diagnose(), "clocks")
    assert first.level is Level.WARNING
    assert re.search(rf"the clock of shard three-00000003 \(member three\) is {words}", first.summary)


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
